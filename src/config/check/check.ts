/**
 * Is a config right? On Node only: `npx sluice check`, `npm start`, and the build of a deployment, which a mistake stops. The
 * Worker takes what was found right.
 */
import * as v from 'valibot'
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { type Config, compileConfig } from '../compile.ts'
import { methodsOf } from '../compile-credentials.ts'
import { compileGatewayRule, compileLimitRule } from '../compile-rule.ts'
import * as SHEDDING_COMPILER from '../compile-shedding.ts'
import { ConfigError, type Mistake } from '../config-error.ts'
import { mistakesOfAddress } from './address-schema.ts'
import { mistakeOf } from './mistake.ts'
import { mistakesOfCredentials } from './mistakes-of-credentials.ts'
import { mistakesOfAccept, mistakesOfRoutes } from './mistakes-of-routes.ts'
import {
  mistakesAtGateway,
  mistakesByName,
  mistakesOfLists,
  mistakesOfPlans,
  mistakesOfRouteCosts,
  mistakesOfSet,
} from './mistakes-of-rules.ts'
import { mistakesOfAdaptive, mistakesOfShedding } from './mistakes-of-shedding.ts'
import { type ConfigInput, configSchema } from './schema.ts'

/** @throws ConfigError naming every mistake: path, value, fix. */
export function checkConfig(input: unknown): ConfigInput {
  const parsed = v.safeParse(configSchema, input)
  if (!parsed.success) throw new ConfigError(withoutRepeats(parsed.issues.map(mistakeOf)))
  const config: ConfigInput = parsed.output
  // All else takes longer the more of them there are.
  const tooMany = mistakesOfPlans(config)
  if (tooMany.length > 0) throw new ConfigError(tooMany)

  const plans = config.plans ?? ['free']
  const methods = methodsOf(config)
  const rules = config.rules.map(rule => compileGatewayRule(rule, plans, ALL_ALGORITHMS))
  const mistakes = [
    ...mistakesOfSet(config.rules, rules, 'rules'),
    ...config.rules.flatMap((rule, i) => mistakesAtGateway(rule, rules[i]!, `rules[${i}]`, config)),
    ...Object.entries(config.limits ?? {}).flatMap(([name, set]) => [
      ...mistakesOfSet(
        set,
        set.map(rule => [compileLimitRule(rule, ALL_ALGORITHMS)]),
        `limits.${name}`,
      ),
      ...set.flatMap((rule, i) => mistakesByName(rule, `limits.${name}[${i}]`)),
    ]),
    ...mistakesOfAddress(config.address).map(([key, message]) => ({ path: `address.${key}`, message })),
    ...mistakesOfCredentials(config.credentials ?? {}, plans),
    ...mistakesOfRoutes(config.routes ?? [], methods),
    ...mistakesOfRouteCosts(config, rules),
    ...mistakesOfLists(config),
    ...mistakesOfShedding(config, rules),
    ...mistakesOfAdaptive(config),
    ...mistakesOfAccept(config.credentials?.accept, methods, 'credentials.accept'),
  ]
  if (mistakes.length > 0) throw new ConfigError(mistakes)
  return config
}

/** @throws ConfigError as checkConfig */
export function checkedConfig(input: unknown): Config {
  return compileConfig(checkConfig(input), ALL_ALGORITHMS, SHEDDING_COMPILER)
}

/** An amount can be wrong in two ways, which are told in one sentence. */
function withoutRepeats(mistakes: readonly Mistake[]): Mistake[] {
  const texts = mistakes.map(({ path, message }) => `${path} ${message}`)
  return mistakes.filter((_, i) => texts.indexOf(texts[i]!) === i)
}
