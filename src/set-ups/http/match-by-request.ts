/** Finds the route and the rules of a request, if the config depends on method, host or path. Pure. */
import { mergeStricter, type RequestPattern, type RouteSettings } from '../../config/compile-route.ts'
import { hostFinder, pathFinder } from '../../patterns/patterns.ts'
import { isOnRoute, type Matching, type MatchRequest, ruleApplies } from './match.ts'
import { httpMethodsOf } from './methods.ts'
import { hostOf, readingsOf } from './path.ts'

/** Methods of which a request has one, and the patterns of paths that match one of its readings. */
interface Reading {
  methods: ReadonlySet<string>
  paths: ReadonlySet<string>
}

/**
 * Some paths can be read in several ways, and the gateway does not know which one the origin chooses. So a
 * rule applies if it matches any reading. If the readings have different routes, the strictest value of each setting
 * applies: only credentials that all of them accept, and the highest cost.
 */
export function createMatchByRequest({ routes, routeDefaults, rules, shedding }: Matching): MatchRequest {
  const classes = shedding?.classes ?? []
  const patterns = [...routes, ...rules, ...classes].flatMap(({ match }) => match ?? [])
  const findHosts = hostFinder(patterns.flatMap(({ host }) => host ?? []))
  const findPaths = pathFinder(patterns.flatMap(({ path }) => path ?? []))
  const knownMethods = new Set(patterns.flatMap(({ methods }) => [...(methods ?? [])]))

  return request => {
    const url = new URL(request.url)
    const hosts = findHosts(hostOf(url))
    const paths = readingsOf(url.pathname)
    if (!paths) throw new Error('the path has too many readings: the request is refused before it is matched')
    // Many readings match the same patterns.
    const distinctPaths = distinct(paths.map(findPaths))
    // A path without its last slash counts only if it has a route.
    const withoutSlash = paths.filter(path => /.\/$/.test(path)).map(path => findPaths(path.slice(0, -1)))
    const methods = distinct(httpMethodsOf(request, url).map(methods => knownMethods.intersection(methods)))
    const readingsAt = (paths: readonly ReadonlySet<string>[]) =>
      paths.flatMap(paths => methods.map((methods): Reading => ({ methods, paths })))
    const matches = (match: RequestPattern, reading: Reading) => matchesReading(match, hosts, reading)
    const routeAt = (reading: Reading) => routes.find(({ match }) => matches(match, reading))

    const readings = readingsAt(distinctPaths)
    const routesOfReadings = new Set([
      ...readings.map(routeAt),
      ...readingsAt(distinct(withoutSlash))
        .map(routeAt)
        .filter(route => route !== undefined),
    ])
    const settings = [...routesOfReadings]
      .map((route): RouteSettings => route ?? routeDefaults)
      .reduce(mergeStricter)
    const names = [...routesOfReadings].flatMap(route => route?.name ?? [])
    // The spelling must not choose the route, or clients could choose their budget.
    const route = routes.find(route => routesOfReadings.has(route))
    const all = { methods: union(methods), paths: union([...distinctPaths, ...withoutSlash]) }
    const classesAt = (reading: Reading) => {
      const route = routeAt(reading)
      const names = route ? [route.name] : []
      return classes.filter(({ match }) => !match || (isOnRoute(match, names) && matches(match, reading)))
    }
    return {
      ...(route && { route }),
      settings,
      rules: rules.filter(rule => ruleApplies(rule, settings, names) && matches(rule.match, all)),
      classes: shedding ? readings.map(classesAt) : [],
    }
  }
}

function matchesReading(
  { methods, host, path }: RequestPattern,
  hosts: ReadonlySet<string>,
  reading: Reading,
): boolean {
  return (
    (methods === undefined || !methods.isDisjointFrom(reading.methods)) &&
    (host === undefined || hosts.has(host)) &&
    (path === undefined || reading.paths.has(path))
  )
}

function distinct(sets: readonly ReadonlySet<string>[]): ReadonlySet<string>[] {
  return [...new Map(sets.map(set => [[...set].join('\n'), set])).values()]
}

const union = (sets: readonly ReadonlySet<string>[]) => new Set(sets.flatMap(set => [...set]))
