/** `defineConfig`, the typed function that sluice.config.ts is written with. */
import type {
  CallLimitRuleInput,
  ConfigInput,
  HooksInput,
  LimitRuleInput,
  RouteInput,
  RuleInput,
} from './check/schema.ts'
import type { REQUESTS } from './compile-rule.ts'
import type { Hooks } from './hooks.ts'

/**
 * Returns its argument, with the types of a config. It checks nothing: `npx sluicegate check`, `npm start` and the build of a
 * deployment do.
 *
 * Names are typed too: rules and hooks can only use plans, routes and units that the config declares, and `candidateFor` only the name
 * of a rule. For a config whose names are computed at run time, use the type `ConfigInput`.
 */
export function defineConfig<
  const Plan extends string = string,
  const Route extends string = string,
  // `never` and not `string`: `Known` reads `string` as names that are computed, and a config without rules has none.
  const Rule extends string = never,
  const Unit extends string = never,
>(input: NamedConfig<Plan, Route, Rule, Unit>): ConfigInput {
  return input as ConfigInput
}

/**
 * A config whose names the compiler knows. If it declares no `plans` or no `routes`, the compiler accepts any name of them, and only
 * the check of the config finds wrong ones.
 */
type NamedConfig<Plan extends string, Route extends string, Rule extends string, Unit extends string> = Omit<
  ConfigInput,
  'plans' | 'routes' | 'rules' | 'hooks' | 'units' | 'limits'
> & {
  plans?: Plan[] | undefined
  routes?: NamedRoute<Route>[] | undefined
  units?: { [Name in Unit]: NonNullable<ConfigInput['units']>[string] } | undefined
  rules?:
    | NamedRule<
        RuleInput,
        Known<NoInfer<Plan>, Rule>,
        Known<NoInfer<Route>, Rule>,
        Rule,
        Known<NoInfer<Unit>, Rule>
      >[]
    | undefined
  limits?:
    | Record<string, OfUnit<LimitRuleInput | CallLimitRuleInput, Known<NoInfer<Unit>, Rule>>[]>
    | undefined
  hooks?: NoInfer<NamedHooks<Known<Plan, Rule>, Known<Route, Rule>, Known<Unit, Rule>>> | undefined
}

/** If the compiler does not know the names of the rules (`Rule` is `string`), rules and hooks can use any plan and route. */
type Known<Name extends string, Rule extends string> = string extends Rule ? string : Name

/** Maps the keys of `HooksInput`, so that an editor shows their doc comments. */
type NamedHooks<Plan extends string, Route extends string, Unit extends string> = {
  [Name in keyof HooksInput]: Name extends keyof Hooks ? Hooks<Plan, Route, Unit>[Name] : HooksInput[Name]
}

/** A rule that counts requests, or a unit that the config declares. */
type OfUnit<Input, Unit extends string> = Input extends { unit?: unknown }
  ? Omit<Input, 'unit'> & { unit?: Unit | typeof REQUESTS | undefined }
  : never

type NamedRoute<Route extends string> = Omit<RouteInput, 'name'> & { name: Route }

/** Distributes over the algorithms, so that an editor offers the settings of the chosen one. */
type NamedRule<
  Input,
  Plan extends string,
  Route extends string,
  Rule extends string,
  Unit extends string,
> = Input extends RuleInput
  ? Omit<OfUnit<Input, Unit>, 'name' | 'candidateFor' | 'match' | 'plans'> & {
      name: Rule
      candidateFor?: NoInfer<Rule> | undefined
      match?: NamedMatch<Plan, Route> | undefined
      plans?: { [Name in Plan]?: NonNullable<Input['plans']>[string] | undefined } | undefined
    }
  : never

type NamedMatch<Plan extends string, Route extends string> = Omit<
  NonNullable<RuleInput['match']>,
  'plans' | 'routes'
> & {
  plans?: Plan[] | undefined
  routes?: Route[] | undefined
}
