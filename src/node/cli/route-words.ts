/** The settings of a route as `check` and `explain` print them. */
import type { RouteSettings } from '../../config/compile-route.ts'

/** Leaves out what is the same as for requests without a route. A setting without words of its own is printed by its name. */
export function wordsOfRoute(
  { accept: _, isLimited, ...others }: RouteSettings,
  routeDefaults: RouteSettings,
): string[] {
  const names = Object.keys(others) as (keyof typeof others)[]
  const words = names
    .filter(name => others[name] !== routeDefaults[name])
    .map(name => (name === 'cost' ? `cost × ${others[name]}` : `${name} ${others[name]}`))
  return isLimited ? words : ['not limited', ...words]
}
