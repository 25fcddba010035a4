/**
 * What a Worker gets of its config when it is built: the scripts, compiled, the algorithms that its rules use, and the parts of
 * the gateway that its settings use. `npx sluice build` writes it to src/built/worker.generated.ts.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import type { Config } from '../config/compile.ts'
import { probePolicy } from '../limiter/probe.ts'
import { type BuiltScript, type BuiltScripts, fingerprintOf } from '../script/built-scripts.ts'
import { gatewayPolicy } from '../script/compiled.ts'
import { FIRST_LINES } from '../script/script-of.ts'
import { compileScripts } from '../script/scripts.ts'
import type { Script } from '../store/store.ts'

export const BUILT_FILE = new URL('../built/worker.generated.ts', import.meta.url)

type Built = Pick<Config, 'rules' | 'plans' | 'cluster' | 'cors' | 'address'>

/**
 * Writes what a Worker with this config carries, if it is not there: wrangler watches the folder, and would build again.
 * @param file where it goes
 */
export function buildWorker(config: Built, file: URL | string = BUILT_FILE): void {
  const text = workerModule(config)
  if (!existsSync(file) || readFileSync(file, 'utf8') !== text) writeFileSync(file, text)
}

/** The text of src/built/worker.generated.ts. */
export function workerModule(config: Built): string {
  const imports = new Map<string, string[]>([['../script/built-scripts.ts', ['finderOf']]])
  /** The name under which a module is imported, or what throws where the config does not use it. */
  const used = (isUsed: boolean, name: string, from: string) => {
    const [module, exported] = isUsed ? [from, name] : ['../not-built.ts', 'notBuilt']
    imports.set(module, [...new Set([...(imports.get(module) ?? []), exported])])
    return isUsed ? name : `notBuilt('${name}')`
  }
  const algorithms = [...new Set(config.rules.map(({ algorithm }) => algorithm))].sort()
  const hasCalendar = config.rules.some(({ calendar }) => calendar)
  const hasProxies = config.address.from === 'x-forwarded-for' || config.address.from === 'forwarded'
  const hasCors = config.cors !== undefined
  const lines = [
    'export const algorithms: Algorithms = {',
    `  countings: { ${algorithms.map(name => `'${name}': ${localName(name)}.counting`).join(', ')} },`,
    `  windowEnds: ${used(hasCalendar, 'windowEnds', '../algorithms/calendar.ts')},`,
    '}',
    '',
    'export const parts: Parts = {',
    `  evaluateOnCluster: ${used(config.cluster, 'evaluateOnCluster', '../limiter/slots.ts')},`,
    `  addressBehindProxies: ${used(hasProxies, 'addressBehindProxies', '../edges/gateway/behind-proxies.ts')},`,
    `  answerPreflight: ${used(hasCors, 'answerPreflight', '../edges/gateway/cors.ts')},`,
    `  setAllowedOrigin: ${used(hasCors, 'setAllowedOrigin', '../edges/gateway/cors.ts')},`,
    `  scriptsOf: finderOf(${JSON.stringify(scriptsOf(config), null, 2)}),`,
    '}',
    '',
  ]
  return [
    '// Made by `npx sluice build` from the config. Do not edit.',
    '',
    "import type { Algorithms } from '../algorithms/descriptor.ts'",
    ...algorithms.map(name => `import * as ${localName(name)} from '../algorithms/${name}.descriptor.ts'`),
    "import type { Parts } from '../edges/gateway/parts.ts'",
    ...[...imports].map(([from, names]) => `import { ${names.join(', ')} } from '${from}'`),
    '',
    ...lines,
  ].join('\n')
}

/** `fixed-window` → `fixedWindow` */
const localName = (name: string) => name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase())

/** The scripts of the gateway and of its probes, by the fingerprint of their policies. */
function scriptsOf(config: Built): Record<string, BuiltScripts> {
  const gateway = gatewayPolicy(config)
  const probe = probePolicy(compileScripts)
  return {
    [fingerprintOf(gateway)]: {
      decide: builtOf(gateway.decide),
      // The gateway gives back where slots of a cluster disagree, and nowhere else.
      ...(config.cluster && { refund: builtOf(gateway.refund) }),
    },
    [fingerprintOf(probe)]: { decide: builtOf(probe.decide) },
  }
}

function builtOf({ keyLocking, plain }: Script): BuiltScript {
  return {
    text: plain.source.slice(FIRST_LINES.plain.length),
    sha1: { keyLocking: keyLocking.sha1, plain: plain.sha1 },
  }
}
