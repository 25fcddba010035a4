/**
 * Checks a config: in `npx sluicegate check`, in `npm start`, and in the build of a deployment, which fails if there is a mistake. An
 * set-up that is not built checks its config when it is created. A built Worker gets a config that has been checked.
 */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { type Config, compileConfig } from '../compile.ts'
import { credentialMethodsOf } from '../compile-credentials.ts'
import { compileGatewayRule, compileLimitRule, withMax } from '../compile-rule.ts'
import * as SHEDDING_COMPILER from '../compile-shedding.ts'
import { compileUnits, unitsOf } from '../compile-units.ts'
import { ConfigError, type Mistake } from '../config-error.ts'
import { mistakesOfAddress } from './address-schema.ts'
import { mistakesOfHooks } from './hooks-schema.ts'
import { mistakesOfMetrics } from './metrics-schema.ts'
import { show } from './mistake.ts'
import { mistakesOfCredentials } from './mistakes-of-credentials.ts'
import { mistakesOfAccept, mistakesOfRoutes } from './mistakes-of-routes.ts'
import {
  mistakesOfFailOpen,
  mistakesOfGatewayRule,
  mistakesOfLimitRule,
  mistakesOfLists,
  mistakesOfPlans,
  mistakesOfRouteCosts,
  mistakesOfSet,
} from './mistakes-of-rules.ts'
import { mistakesOfReserving } from './mistakes-of-settlement.ts'
import { mistakesOfAdaptive, mistakesOfShedding } from './mistakes-of-shedding.ts'
import { mistakesOfUnits } from './mistakes-of-units.ts'
import { findNotPlain } from './plain.ts'
import type { ConfigInput } from './schema.ts'
import { findSoundParts } from './sound-parts.ts'

/**
 * Checks a config, and returns it unchanged.
 * @throws ConfigError that lists every mistake with its path, value and fix
 */
export function checkConfig(input: unknown): ConfigInput {
  const notPlain = findNotPlain(input)
  if (notPlain.length > 0) throw new ConfigError(notPlain)
  if (Array.isArray(input))
    throw new ConfigError([{ path: 'config', message: `${show(input)} is a list. Write an object, { … }.` }])
  const { mistakes, config, holds } = findSoundParts(input)
  const others = config ? mistakesBetweenParts(config).filter(holds) : []
  const all = withoutRepeats([...mistakes, ...others])
  if (all.length > 0 || !config) throw new ConfigError(all)
  return config
}

/** Finds mistakes that the schema cannot find: parts of the config that contradict each other. */
function mistakesBetweenParts(config: ConfigInput): Mistake[] {
  // First, because the other checks take longer the more plans and rules there are.
  const tooMany = mistakesOfPlans(config)
  if (tooMany.length > 0) return tooMany

  const plans = config.plans ?? ['free']
  const methods = credentialMethodsOf(config)
  const written = config.rules ?? []
  const { ofGatewayRule, ofLimitRule } = unitsOf(config.units)
  const rules = written.map(rule =>
    compileGatewayRule(rule, plans, ALL_ALGORITHMS).map(variant => ofGatewayRule(rule, variant)),
  )
  return [
    ...mistakesOfSet(written, 'rules'),
    ...mistakesOfReserving(
      rules.map(([first]) => first!),
      'rules',
    ),
    ...written.flatMap((rule, i) => mistakesOfGatewayRule(rule, rules[i]!, `rules[${i}]`, config)),
    ...Object.entries(config.limits ?? {}).flatMap(([name, written]) => {
      const path = `limits.${name}`
      const set = written.map(withMax)
      const compiled = written.map(rule => ofLimitRule(compileLimitRule(rule, ALL_ALGORITHMS)))
      const mistakes = [
        ...mistakesOfSet(set, path),
        ...mistakesOfReserving(compiled, path),
        ...set.flatMap((rule, i) => mistakesOfLimitRule(rule, compiled[i]!, `${path}[${i}]`, config)),
      ]
      return mistakes.map(mistake => ({ ...mistake, path: pathInMax(mistake.path, written) }))
    }),
    ...mistakesOfFailOpen(config),
    ...mistakesOfUnits(config),
    ...mistakesOfAddress(config.address).map(([key, message]) => ({ path: `address.${key}`, message })),
    ...mistakesOfCredentials(config.credentials ?? {}, plans),
    ...mistakesOfHooks(config),
    ...mistakesOfRoutes(config.routes ?? [], methods),
    ...mistakesOfRouteCosts(config, rules),
    ...mistakesOfLists(config),
    ...mistakesOfMetrics(config),
    ...mistakesOfShedding(config),
    ...mistakesOfAdaptive(config),
    ...mistakesOfAccept(config.credentials?.accept, methods, 'credentials.accept'),
  ]
}

/** Checks and compiles a config. @throws ConfigError as checkConfig */
export function checkedConfig(input: unknown): Config {
  return compileConfig(checkConfig(input), ALL_ALGORITHMS, { ...SHEDDING_COMPILER, compileUnits })
}

/** The path of a number that is in `max` of a rule. */
const pathInMax = (path: string, rules: readonly object[]): string =>
  path.replace(/\[(\d+)\]\.(limit|period|burst|queue)$/, (whole, i, key) =>
    'max' in rules[i]! ? `[${i}].max.${key}` : whole,
  )

/** Two checks of a number can have the same message, which is shown once. */
function withoutRepeats(mistakes: readonly Mistake[]): Mistake[] {
  const texts = mistakes.map(({ path, message }) => `${path} ${message}`)
  return mistakes.filter((_, i) => texts.indexOf(texts[i]!) === i)
}
