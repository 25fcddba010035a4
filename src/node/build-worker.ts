/**
 * Generates modules from a config before the Worker runs. For the Worker: the compiled scripts, the algorithms that its rules use,
 * and the parts of the gateway that its settings use. For limits by name: their scripts, and the entrypoint of their service
 * binding. `npx sluicegate build` writes the modules to src/built/.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { thirdNumberOf } from '../algorithms/lua-of.ts'
import { API_ROUTES } from '../config/check/api-schema.ts'
import type { Config, Rule } from '../config/compile.ts'
import { countsByField } from '../config/identity-parts.ts'
import {
  anyCountsInFlight,
  anyReserves,
  countsGuesses,
  countsLocally,
  takesLeases,
} from '../limiter/needs.ts'
import { probeRuleSet } from '../limiter/probe.ts'
import { type BuiltScript, type BuiltScripts, fingerprintOf } from '../script/built-scripts.ts'
import { gatewayRuleSet, limitRuleSet } from '../script/compiled.ts'
import { FIRST_LINES } from '../script/create-script.ts'
import { PAUSE } from '../script/pause.ts'
import { RESET } from '../script/reset.ts'
import { compileScripts } from '../script/scripts.ts'
import { signalScript } from '../script/signal-text.ts'
import { syncScript } from '../script/sync-text.ts'
import { furtherRoutes, servedParts } from '../set-ups/api/routes-needed.ts'
import { anyEstimated, estimatesFromBody, readsJobs, readsUsage } from '../set-ups/http/amounts-needed.ts'
import { dependsOnRequest } from '../set-ups/http/match.ts'
import { followsOrigin, hasErrorShapes } from '../set-ups/http/parts.ts'
import type { Script } from '../store/store.ts'
import type { Project } from './project.ts'

type Built = Pick<
  Config,
  | 'rules'
  | 'plans'
  | 'limits'
  | 'units'
  | 'cluster'
  | 'cors'
  | 'address'
  | 'stats'
  | 'metrics'
  | 'shedding'
  | 'adaptive'
  | 'keyLocking'
  | 'refusals'
  | 'hooks'
  | 'routes'
  | 'xRateLimit'
  | 'credentials'
  | 'api'
>

/** Where generated modules import from. */
interface ModulePaths {
  /** Absent: the sources of the repository itself. */
  packageName?: string | undefined
  /** The config, as a module in src/built/ imports it. Absent: the usual file of the project. */
  configPath?: string | undefined
}

/** The text of each generated module, by the name of its file. */
export function builtFiles(config: Built, paths: ModulePaths = {}): ReadonlyMap<string, string> {
  return new Map([
    ['worker.generated.ts', workerModule(config, paths)],
    ['limits.generated.ts', limitsModule(config, paths)],
    ['binding.generated.ts', bindingModule(config, paths)],
  ])
}

/**
 * Writes only files that are missing or have changed, because wrangler watches the folder and builds again after each write.
 * @param project its `configFile` is the file that was read, which can be in any folder
 */
export function buildWorker(
  config: Built,
  {
    builtFolder,
    packageName,
    configFile,
  }: Pick<Project, 'builtFolder' | 'packageName'> & Partial<Pick<Project, 'configFile'>>,
): void {
  mkdirSync(builtFolder, { recursive: true })
  const configPath = configFile && importPath(builtFolder, configFile)
  for (const [name, text] of builtFiles(config, { packageName, configPath })) {
    const file = join(builtFolder, name)
    if (!existsSync(file) || readFileSync(file, 'utf8') !== text) writeFileSync(file, text)
  }
}

/** `../../sluice.config.ts`, with slashes on every system. */
function importPath(folder: string, file: string): string {
  const path = relative(folder, file).split(sep).join('/')
  return path.startsWith('.') ? path : `./${path}`
}

const DEFAULT_CONFIG_PATH = '../../sluice.config.ts'

const FIRST_LINE = '// Made by `npx sluicegate build` from the config. Do not edit.'

/** Writes the lines of a generated module, and collects the names that they import. */
function createModule(imported: readonly string[]) {
  const imports = new Set(imported)
  /** An entry for a part that the config uses. */
  const used = (isUsed: boolean, name: string, text?: string, imported = name): string[] => {
    if (!isUsed) return []
    imports.add(imported)
    return [text === undefined ? `    ${name},` : `    ${name}: ${text},`]
  }
  return {
    imports,
    used,
    /** An entry for a script that the config uses. */
    script: (isUsed: boolean, name: string, built: () => BuiltScript) =>
      used(isUsed, name, isUsed ? `restoreScript(${JSON.stringify(built(), null, 2)})` : '', 'restoreScript'),
    /** The entry for the algorithms of the rules. */
    algorithmsOf(rules: readonly Rule[]): string[] {
      const names = [...new Set(rules.map(({ algorithm }) => algorithm))].sort()
      for (const name of names) imports.add(localName(name))
      return [
        '  algorithms: withMissingParts({',
        `    countings: { ${names.map(name => `'${name}': ${localName(name)}`).join(', ')} },`,
        ...used(
          rules.some(({ calendar }) => calendar),
          'windowEnds',
        ),
        '  }),',
      ]
    },
    /** The entry for the engine, which reserves units only if a rule does. */
    engineOf: (rules: readonly Rule[]) =>
      anyReserves(rules)
        ? used(true, 'createEngine', 'createEngineWithReservations', 'createEngineWithReservations')
        : used(true, 'createEngine'),
    /** The entry for the scripts of rules. @param finder finds them */
    finderOf(rules: readonly Rule[], name: string, finder = name) {
      if (!anyReserves(rules)) return name === finder ? `    ${name},` : `    ${name}: ${finder},`
      imports.add('withReservations')
      return `    ${name}: withReservations(${finder}),`
    },
    importsFrom: (path: string) => `import { ${[...imports].sort().join(', ')} } from '${path}'`,
  }
}

/** The text of src/built/worker.generated.ts. */
export function workerModule(
  config: Built,
  { packageName, configPath = DEFAULT_CONFIG_PATH }: ModulePaths = {},
): string {
  const { imports, used, script, algorithmsOf, engineOf, finderOf, importsFrom } = createModule([
    'createWorker',
    'createScriptFinder',
    'withMissingParts',
  ])
  const hasApi = config.api !== undefined
  const served = servedParts(API_ROUTES, config)
  const hasLimits = served.includes('limits')
  const hasOverrides = served.includes('overrides') || served.includes('consumers')
  // The API decides limits by name, and shows what is left of them.
  const limitRules = [...config.limits.values()].flat()
  const rules = hasApi ? [...config.rules, ...limitRules] : config.rules
  const callRules = hasLimits ? limitRules.filter(({ atCall }) => atCall) : []
  const overridable = served.includes('overrides') ? limitRules.filter(rule => rule.isOverridable) : []
  const ofNumbers = [...(hasOverrides ? config.rules : []), ...callRules, ...overridable]
  const needsHoldings = anyCountsInFlight(rules)
  const sumStats = anyReserves(rules) ? 'sumFields' : 'sumCounts'
  const isFollowing = followsOrigin(config)
  const isShedding = config.shedding !== undefined || config.adaptive !== undefined
  const hasProxies = config.address.from === 'x-forwarded-for' || config.address.from === 'forwarded'
  const hasCors = config.cors !== undefined
  const hasMetrics = config.metrics !== undefined
  const { workerUtilization } = config.shedding ?? {}
  const lines = [
    'export default createWorker(config, {',
    ...algorithmsOf(rules),
    '  parts: withMissingParts({',
    ...used(config.cluster, 'evaluateOnCluster'),
    ...used(hasProxies, 'addressBehindProxies'),
    ...used(hasCors, 'answerPreflight'),
    ...used(hasCors, 'setAllowedOrigin'),
    ...(anyEstimated(config)
      ? used(true, 'createDecideRequest', 'createDecideRequestWithAmounts', 'createDecideRequestWithAmounts')
      : used(true, 'createDecideRequest')),
    ...used(readsUsage(config), 'createUsageReader'),
    ...used(readsJobs(config), 'createJobs'),
    ...used(hasErrorShapes(config), 'createErrorShapes'),
    ...used(estimatesFromBody(config), 'createEstimateAmounts'),
    ...used(config.hooks?.actual !== undefined, 'withActualHook'),
    ...used(config.hooks !== undefined, 'createHookRunner'),
    ...used(config.xRateLimit !== undefined, 'createXRateLimit'),
    ...used(config.credentials.webSocketKeys, 'withWebSocketKeys'),
    ...used(config.address.trustedWorkers !== undefined, 'createClientAddressReader'),
    ...used(countsLocally(rules), 'createLocalLimiter'),
    ...used(takesLeases(rules), 'createLeases'),
    ...used(config.refusals !== undefined, 'createRefusalMemory'),
    ...used(config.stats !== undefined, 'createStatsRecorder'),
    ...used(config.stats?.topCallers !== undefined, 'createTopCallers'),
    ...used(hasMetrics && !config.metrics?.otlp, 'createMeasurements'),
    ...used(config.metrics?.otlp !== undefined, 'createOtlpMeasurements'),
    ...used(hasMetrics, 'createMetricsEndpoint'),
    ...used(hasMetrics && isShedding, 'prepareFleet'),
    ...used(hasMetrics && config.adaptive !== undefined, 'prepareAdaptive'),
    ...used(hasMetrics && workerUtilization !== undefined, 'prepareUtilization'),
    ...used(hasApi, 'createApi'),
    ...used(hasApi && config.credentials.signature !== undefined, 'createKeySigning'),
    ...used(hasApi && config.cluster, 'opsOnCluster'),
    ...used(config.api?.cors !== undefined, 'withApiCors'),
    ...(hasApi ? [routesOf(config, imports)] : []),
    ...used(hasLimits, 'createApiLimits'),
    ...script(hasLimits, 'resetScript', () => builtOf(RESET, kindsOf(config))),
    ...script(hasLimits, 'pauseScript', () => builtOf(PAUSE, kindsOf(config))),
    ...used(hasLimits && anyReserves(limitRules), 'createReserving'),
    ...used(hasLimits && anyCountsInFlight(limitRules), 'createHolder'),
    ...(config.limits.size > 0 && hasApi ? [finderOf(limitRules, 'scriptsOfLimits')] : []),
    ...used(served.includes('stats'), 'sumStats', sumStats, sumStats),
    ...used(hasOverrides, 'createOverrides'),
    ...used(callRules.length > 0, 'createGiveNumbers'),
    ...(hasOverrides || callRules.length > 0 ? [numbersOf(ofNumbers, imports)] : []),
    ...used(
      (served.includes('overrides') && anyEstimated(config)) || anyReserves([...callRules, ...overridable]),
      'mistakesOfSettlement',
    ),
    ...used(config.shedding !== undefined, 'classOfRequest'),
    ...used(dependsOnRequest(config), 'createMatchByRequest'),
    ...used(config.credentials.signature !== undefined, 'createSignatureCheck'),
    ...used(countsGuesses(config, config.rules), 'createGuesses'),
    ...used(countsByField(config.rules), 'createFieldReader'),
    ...used(config.credentials.opaqueKeys !== undefined, 'createOpaqueKeyFinder'),
    ...used(config.credentials.jwt.size > 0, 'createTokenFinder'),
    ...used(isFollowing, 'createOriginLoad'),
    ...used(workerUtilization !== undefined, 'createUtilizationShedderAndBoard'),
    ...(workerUtilization?.ofProcess ? ['    createProcessPressure: undefined,'] : []),
    ...used(config.adaptive !== undefined, 'createAdaptiveLimit'),
    ...script(isFollowing, 'signalScript', () => builtOf(signalScript(), kindsOf(config))),
    ...used(workerUtilization?.pushes !== undefined, 'createPushReceiver'),
    ...used(needsHoldings, 'createHoldingsKeeper'),
    ...engineOf(rules),
    ...used(anyCountsInFlight(config.rules) || anyReserves(config.rules), 'observeEnd'),
    ...script(needsHoldings, 'syncScript', () => builtOf(syncScript(), kindsOf(config))),
    finderOf(config.rules, 'scriptsOf', `createScriptFinder(${JSON.stringify(scriptsOf(config), null, 2)})`),
    '  }),',
    '  compilers: withMissingParts({',
    ...used(config.units !== undefined, 'compileUnits'),
    ...['compileFleetRules', 'compileShedding', 'compileAdaptive'].flatMap(name => used(isShedding, name)),
    '  }),',
    '})',
    '',
  ]
  return [
    FIRST_LINE,
    importsFrom(packageName ? `${packageName}/built` : '../set-ups/gateway/built.ts'),
    `import config from ${quoted(configPath)}`,
    // Last, so that the scripts of the gateway follow them in a bundle: compression finds what they have in common.
    ...(hasApi && config.limits.size > 0
      ? ["import { scriptsOf as scriptsOfLimits } from './limits.generated.ts'"]
      : []),
    '',
    ...lines,
  ].join('\n')
}

/** The text of src/built/limits.generated.ts, which the gateway does not import. */
function limitsModule({ limits }: Built, { packageName }: ModulePaths): string {
  // Compression looks back 32 kB. Scripts of about the same length are often the same but for their numbers, so they come one after
  // the other: 64 limits take 20 kB (gzip) instead of 67 kB.
  const ruleSets = [...limits.values()]
    .map(limitRuleSet)
    .sort((a, b) => a.decide.plain.source.length - b.decide.plain.source.length)
  const scripts = Object.fromEntries([
    ...ruleSets.map(ruleSet => [
      fingerprintOf(ruleSet),
      {
        decide: builtOf(ruleSet.decide),
        refund: builtOf(ruleSet.refund),
        ...(ruleSet.settle && { settle: builtOf(ruleSet.settle) }),
      },
    ]),
    builtProbe(),
  ])
  return [
    FIRST_LINE,
    '',
    `import { createScriptFinder } from '${packageName ? `${packageName}/scripts` : '../script/built-scripts.ts'}'`,
    '',
    '/** The scripts of the limits by name, for `createLimiter`. */',
    `export const scriptsOf = createScriptFinder(${JSON.stringify(scripts, null, 2)})`,
    '',
  ].join('\n')
}

/** The text of src/built/binding.generated.ts, which the gateway does not import. */
function bindingModule(
  config: Built,
  { packageName, configPath = DEFAULT_CONFIG_PATH }: ModulePaths = {},
): string {
  const rules = [...config.limits.values()].flat()
  const callRules = rules.filter(({ atCall }) => atCall)
  const { imports, used, script, algorithmsOf, engineOf, finderOf, importsFrom } = createModule([
    'builtEntrypoint',
    'withMissingParts',
  ])
  const needsHoldings = anyCountsInFlight(rules)
  const lines = [
    '/** The limits by name as a service binding. */',
    'export class Limits extends builtEntrypoint(config, {',
    ...algorithmsOf(rules),
    '  parts: withMissingParts({',
    finderOf(rules, 'scriptsOf'),
    ...used(config.cluster, 'evaluateOnCluster'),
    ...used(countsLocally(rules), 'createLocalLimiter'),
    ...used(takesLeases(rules), 'createLeases'),
    ...used(config.refusals !== undefined, 'createRefusalMemory'),
    ...used(config.stats !== undefined, 'createStatsRecorder'),
    ...used(config.stats?.topCallers !== undefined, 'createTopCallers'),
    ...used(config.metrics !== undefined && !config.metrics.otlp, 'createMeasurements'),
    ...used(config.metrics?.otlp !== undefined, 'createOtlpMeasurements'),
    ...used(needsHoldings, 'createHoldingsKeeper'),
    ...engineOf(rules),
    ...used(anyReserves(rules), 'createReserving'),
    ...used(callRules.length > 0, 'createGiveNumbers'),
    ...(callRules.length > 0 ? [numbersOf(callRules, imports)] : []),
    ...used(anyReserves(callRules), 'mistakesOfSettlement'),
    ...script(needsHoldings, 'syncScript', () => builtOf(syncScript(), kindsOf(config))),
    ...script(config.limits.size > 0, 'pauseScript', () => builtOf(PAUSE, kindsOf(config))),
    '  }),',
    '  compilers: withMissingParts({',
    ...used(config.units !== undefined && config.units.size > 0, 'compileUnits'),
    '  }),',
    '}) {}',
    '',
  ]
  return [
    FIRST_LINE,
    // First, so that the scripts follow those of the gateway in a bundle: compression finds what they have in common.
    "import { scriptsOf } from './limits.generated.ts'",
    importsFrom(packageName ? `${packageName}/rpc/built` : '../set-ups/rpc/built.ts'),
    `import config from ${quoted(configPath)}`,
    '',
    ...lines,
  ].join('\n')
}

/** Its routes are one entry. The OpenAPI document gets what it says about the parts that are served. */
function routesOf(config: Built, imports: Set<string>): string {
  const imported = (name: string) => {
    imports.add(name)
    return name
  }
  const served = servedParts(API_ROUTES, config)
  const entries = served.flatMap(part => {
    if (part === 'openapi') {
      const described = [...served, ...served.flatMap(each => furtherRoutes(each, config))]
      const operations = described.map(each => imported(`${each}Operations`))
      return [`${imported('createOpenapiRoutes')}([${operations.join(', ')}])`]
    }
    return [part, ...furtherRoutes(part, config)].map(each => imported(`${each}Routes`))
  })
  return `    apiRoutes: [${entries.map(routes => `...${routes}`).join(', ')}],`
}

/** The entry for the algorithms that overrides and numbers at the call are compiled for, with the third number of their scripts. */
function numbersOf(rules: readonly Rule[], imports: Set<string>): string {
  const names = [...new Set(rules.map(({ algorithm }) => algorithm))].sort()
  const entries = names.map(name => {
    const numbers = `${localName(name)}Numbers`
    imports.add(numbers)
    const third = thirdNumberOf(name)
    return `'${name}': { numbers: ${numbers}${third ? `, third: '${third}'` : ''} }`
  })
  return `    ruleNumbers: { ${entries.join(', ')} },`
}

/** As Biome writes strings, where that is possible. */
const quoted = (text: string) => (/['\\]/.test(text) ? JSON.stringify(text) : `'${text}'`)

/** `fixed-window` → `fixedWindow` */
const localName = (name: string) => name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase())

/** The scripts of the gateway and of its probes, by the fingerprint of their rule sets. */
function scriptsOf(config: Built): Record<string, BuiltScripts> {
  const gateway = gatewayRuleSet(config)
  const kinds = kindsOf(config)
  const [fingerprint, probe] = builtProbe(kinds)
  return {
    [fingerprintOf(gateway)]: {
      // The gateway refunds units if slots of a cluster disagree, and the unused units of leases. The shorter script comes first:
      // compression looks back 32 kB, and then finds in the longer script what both have in common.
      ...((config.cluster || takesLeases(config.rules)) && { refund: builtOf(gateway.refund, kinds) }),
      ...(gateway.settle && { settle: builtOf(gateway.settle, kinds) }),
      decide: builtOf(gateway.decide, kinds),
    },
    [fingerprint]: probe,
  }
}

function builtProbe(kinds?: readonly (keyof Script)[]): [string, BuiltScripts] {
  const probe = probeRuleSet(compileScripts)
  return [fingerprintOf(probe), { decide: builtOf(probe.decide, kinds) }]
}

/** @param kinds the forms of the script that the store may run. Other digests are left out, because digests do not compress */
function builtOf(script: Script, kinds: readonly (keyof Script)[] = ['keyLocking', 'plain']): BuiltScript {
  return {
    text: script.plain.source.slice(FIRST_LINES.plain.length),
    sha1: Object.fromEntries(kinds.map(kind => [kind, script[kind].sha1])),
  }
}

/** With opaque keys, some calls do not declare all of their Redis keys. These calls run without key locking. */
function kindsOf({ keyLocking, credentials }: Built): (keyof Script)[] {
  if (!keyLocking) return ['plain']
  return credentials.opaqueKeys ? ['keyLocking', 'plain'] : ['keyLocking']
}
