/**
 * What is made of a config before it runs. For the Worker: the scripts, compiled, the algorithms that its rules use, and the parts
 * of the gateway that its settings use. For limits by name: their scripts. `npx sluice build` writes it to src/built/.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Config } from '../config/compile.ts'
import { countsLocally, followsOrigin, holdsInAdvance, holdsUnits } from '../edges/gateway/parts.ts'
import { probePolicy } from '../limiter/probe.ts'
import { type BuiltScript, type BuiltScripts, fingerprintOf } from '../script/built-scripts.ts'
import { gatewayPolicy, limitPolicy } from '../script/compiled.ts'
import { FIRST_LINES } from '../script/script-of.ts'
import { compileScripts } from '../script/scripts.ts'
import { signalScript } from '../script/signal-text.ts'
import { syncScript } from '../script/sync-text.ts'
import type { Script } from '../store/store.ts'

export const BUILT_FOLDER = fileURLToPath(new URL('../built/', import.meta.url))

type Built = Pick<
  Config,
  'rules' | 'plans' | 'limits' | 'cluster' | 'cors' | 'address' | 'stats' | 'shedding' | 'adaptive'
>

/** What is written, by the name of its file. */
export function builtFiles(config: Built): ReadonlyMap<string, string> {
  return new Map([
    ['worker.generated.ts', workerModule(config)],
    ['limits.generated.ts', limitsModule(config)],
  ])
}

/** Writes the files that are not there as they should be: wrangler watches the folder, and would build again. */
export function buildWorker(config: Built, folder = BUILT_FOLDER): void {
  for (const [name, text] of builtFiles(config)) {
    const file = join(folder, name)
    if (!existsSync(file) || readFileSync(file, 'utf8') !== text) writeFileSync(file, text)
  }
}

const FIRST_LINE = '// Made by `npx sluice build` from the config. Do not edit.'

/** The text of src/built/worker.generated.ts. */
export function workerModule(config: Built): string {
  const imports = new Map<string, string[]>([['../script/built-scripts.ts', ['finderOf']]])
  /** The name under which a module is imported, or what throws where the config does not use it. */
  const used = (isUsed: boolean, name: string, from: string, text = name, imported = name) => {
    const [module, exported] = isUsed ? [from, imported] : ['../not-built.ts', 'notBuilt']
    imports.set(module, [...new Set([...(imports.get(module) ?? []), exported])])
    return isUsed ? text : `notBuilt('${name}')`
  }
  const algorithms = [...new Set(config.rules.map(({ algorithm }) => algorithm))].sort()
  const hasCalendar = config.rules.some(({ calendar }) => calendar)
  const isHeld = holdsUnits(config)
  const isStocked = holdsInAdvance(config)
  const isFollowing = followsOrigin(config)
  const isShedding = config.shedding !== undefined || config.adaptive !== undefined
  const isLocal = countsLocally(config)
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
    `  createLocalLimiter: ${used(isLocal, 'createLocalLimiter', '../limiter/local.ts')},`,
    `  createStats: ${used(config.stats !== undefined, 'createStats', '../metrics/keep-stats.ts')},`,
    `  classFor: ${used(config.shedding !== undefined, 'classFor', '../edges/gateway/traffic-class.ts')},`,
    `  createOriginLoad: ${used(isFollowing, 'createOriginLoad', '../edges/gateway/origin-load.ts')},`,
    `  createWorkerUtilization: ${used(config.shedding?.workerUtilization !== undefined, 'createWorkerUtilization', '../shedding/worker-utilization.ts')},`,
    `  createAdaptiveLimit: ${used(config.adaptive !== undefined, 'createAdaptiveLimit', '../shedding/adaptive-limit.ts')},`,
    `  withSignals: ${used(isFollowing, 'withSignals', '../shedding/signal-board.ts')},`,
    `  refreshOverdue: ${used(isFollowing, 'refreshOverdue', '../shedding/signal-board.ts')},`,
    `  signalScript: ${used(isFollowing, 'signalScript', '../script/built-scripts.ts', `loadScript(${JSON.stringify(builtOf(signalScript()), null, 2)})`, 'loadScript')},`,
    `  receivePushes: ${used(config.shedding?.workerUtilization?.pushes !== undefined, 'receivePushes', '../edges/gateway/utilization.ts')},`,
    `  createHoldings: ${used(isHeld, 'createHoldings', '../limiter/keep-holdings.ts', isStocked ? `options => createHoldings({ ...options, ${used(true, 'createStock', '../limiter/stock.ts')} })` : undefined)},`,
    `  whenOver: ${used(isHeld, 'whenOver', '../edges/gateway/ending.ts')},`,
    `  syncScript: ${used(isHeld, 'syncScript', '../script/built-scripts.ts', `loadScript(${JSON.stringify(builtOf(syncScript()), null, 2)})`, 'loadScript')},`,
    `  scriptsOf: finderOf(${JSON.stringify(scriptsOf(config), null, 2)}),`,
    '}',
    '',
    'export const shedding: SheddingCompiler = {',
    ...['compileFleetRules', 'compileShedding', 'compileAdaptive'].map(
      name => `  ${name}: ${used(isShedding, name, '../config/compile-shedding.ts')},`,
    ),
    '}',
    '',
  ]
  return [
    FIRST_LINE,
    '',
    "import type { Algorithms } from '../algorithms/descriptor.ts'",
    ...algorithms.map(name => `import * as ${localName(name)} from '../algorithms/${name}.descriptor.ts'`),
    "import type { SheddingCompiler } from '../config/compile-shedding.ts'",
    "import type { Parts } from '../edges/gateway/parts.ts'",
    ...[...imports].map(([from, names]) => `import { ${names.join(', ')} } from '${from}'`),
    '',
    ...lines,
  ].join('\n')
}

/** The text of src/built/limits.generated.ts, which the gateway does not import. */
function limitsModule({ limits }: Built): string {
  const policies = [...limits.values()].map(limitPolicy)
  const scripts = Object.fromEntries([
    ...policies.map(policy => [
      fingerprintOf(policy),
      { decide: builtOf(policy.decide), refund: builtOf(policy.refund) },
    ]),
    builtProbe(),
  ])
  return [
    FIRST_LINE,
    '',
    "import { finderOf } from '../script/built-scripts.ts'",
    '',
    '/** The scripts of the limits by name, for `createLimiter`. */',
    `export const scriptsOf = finderOf(${JSON.stringify(scripts, null, 2)})`,
    '',
  ].join('\n')
}

/** `fixed-window` → `fixedWindow` */
const localName = (name: string) => name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase())

/** The scripts of the gateway and of its probes, by the fingerprint of their policies. */
function scriptsOf(config: Built): Record<string, BuiltScripts> {
  const gateway = gatewayPolicy(config)
  const [fingerprint, probe] = builtProbe()
  return {
    [fingerprintOf(gateway)]: {
      // The gateway gives back where slots of a cluster disagree, and nowhere else. The shorter one comes first: then compression,
      // which looks back 32 kB, finds in the other what they have in common.
      ...(config.cluster && { refund: builtOf(gateway.refund) }),
      decide: builtOf(gateway.decide),
    },
    [fingerprint]: probe,
  }
}

function builtProbe(): [string, BuiltScripts] {
  const probe = probePolicy(compileScripts)
  return [fingerprintOf(probe), { decide: builtOf(probe.decide) }]
}

function builtOf({ keyLocking, plain }: Script): BuiltScript {
  return {
    text: plain.source.slice(FIRST_LINES.plain.length),
    sha1: { keyLocking: keyLocking.sha1, plain: plain.sha1 },
  }
}
