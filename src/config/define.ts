/** What a config is written with. */
import type { ConfigInput, RouteInput, RuleInput } from './check/schema.ts'

/**
 * Types the config of sluice.config.ts, and nothing else: it is checked by `npx sluicegate check`, by `npm start`, and when
 * the Worker is built for a deployment.
 *
 * Names are typed too: rules take the plans and routes that the config declares, and `candidateFor` the name of a rule. A config
 * whose names only the program knows is a `ConfigInput`.
 */
export function defineConfig<
  const Plan extends string = string,
  const Route extends string = string,
  const Rule extends string = string,
>(input: NamedConfig<Plan, Route, Rule>): ConfigInput {
  return input as ConfigInput
}

/** A config whose names are known to the compiler. Names that it does not declare (no `plans`, no `routes`) are left to the check. */
type NamedConfig<Plan extends string, Route extends string, Rule extends string> = Omit<
  ConfigInput,
  'plans' | 'routes' | 'rules'
> & {
  plans?: Plan[] | undefined
  routes?: NamedRoute<Route>[] | undefined
  rules?: NamedRule<RuleInput, Known<NoInfer<Plan>, Rule>, Known<NoInfer<Route>, Rule>, Rule>[] | undefined
}

/** Rules that were made elsewhere have any name (`Rule` is `string`), and names of any plan and route. */
type Known<Name extends string, Rule extends string> = string extends Rule ? string : Name

type NamedRoute<Route extends string> = Omit<RouteInput, 'name'> & { name: Route }

/** For each algorithm, so that an editor offers the settings of the one that is written. */
type NamedRule<
  Input,
  Plan extends string,
  Route extends string,
  Rule extends string,
> = Input extends RuleInput
  ? Omit<Input, 'name' | 'candidateFor' | 'match' | 'plans'> & {
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
