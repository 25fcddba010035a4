/** Finds mistakes in `shedding` that the schema cannot find: between its settings, and with the rest of the config. */

import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import {
  compileFleetRules,
  compileShedding,
  DEFAULT_ADAPTIVE,
  DEFAULT_SHEDDING,
  FLEET_USAGE,
  fleetLevels,
  isCritical,
  namesByImportance,
  WORKER_UTILIZATION,
} from '../compile-shedding.ts'
import type { Mistake } from '../config-error.ts'
import { didYouMean } from './did-you-mean.ts'
import { mistakesOfMatch } from './mistakes-of-rules.ts'
import { adaptiveOf } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'

/** Finds mistakes in adaptive limits. There is one origin, so a config can have only one such limit. */
export function mistakesOfAdaptive({ rules = [], shedding }: ConfigInput): Mistake[] {
  const fleet = shedding?.fleetUsage
  const all = [
    ...rules.flatMap((rule, i) => {
      const own = adaptiveOf(rule)
      if (!own) return []
      const isOfOrigin =
        rule.algorithm === 'concurrency' && [rule.by].flat().join() === 'global' && !rule.plans
      return [
        { path: `rules[${i}].adaptive`, ...own, max: rule.limit, of: 'limit', isOfOrigin, cost: rule.cost },
      ]
    }),
    ...(fleet?.adaptive
      ? [
          {
            path: 'shedding.fleetUsage.adaptive',
            ...fleet.adaptive,
            max: fleet.capacity,
            of: 'capacity',
            isOfOrigin: true,
            cost: 1,
          },
        ]
      : []),
  ]
  return all.flatMap(({ path, min: given, initial, max, of, isOfOrigin, cost = 1 }, i): Mistake[] => {
    const min = given ?? Math.min(DEFAULT_ADAPTIVE.min, max)
    return [
      ...(isOfOrigin
        ? []
        : [
            {
              path,
              message:
                "needs by: 'global' and no plans, because it follows the origin. Change the rule, or leave it out.",
            },
          ]),
      ...(cost !== 1
        ? [
            {
              path: path.replace('adaptive', 'cost'),
              message: `${cost} cannot be combined with adaptive: the limit may fall below it. Leave it out.`,
            },
          ]
        : []),
      ...(i > 0
        ? [
            {
              path,
              message: `is the second adaptive limit: ${all[0]!.path} already follows the origin. Leave one of them out.`,
            },
          ]
        : []),
      ...(min > max
        ? [{ path: `${path}.min`, message: `${min} is above the ${of} (${max}). Lower it.` }]
        : []),
      ...(initial !== undefined && (initial < min || initial > max)
        ? [
            {
              path: `${path}.initial`,
              message: `${initial} is not between min (${min}) and the ${of} (${max}). Change it.`,
            },
          ]
        : []),
    ]
  })
}

export function mistakesOfShedding(config: ConfigInput): Mistake[] {
  const { rules = [], shedding } = config
  if (!shedding) return []
  const mistakes: Mistake[] = []
  const report = (key: string, message: string) => mistakes.push({ path: `shedding.${key}`, message })
  const { classes, importance, fleetUsage, workerUtilization } = shedding
  const names = classes.map(({ name }) => name)
  const fixOf = (name: string) => didYouMean(name, names) || ' Name one of them.'
  for (const [i, { name, match }] of classes.entries()) {
    const first = names.indexOf(name)
    if (first < i) {
      report(
        `classes[${i}].name`,
        `'${name}' is already the name of shedding.classes[${first}]. Give each class its own name.`,
      )
    }
    if (match) mistakes.push(...mistakesOfMatch(match, `shedding.classes[${i}]`, config))
  }
  const open = classes.filter(({ match }) => match === undefined).map(({ name }) => name)
  if (open.length === 0) {
    report(
      'classes',
      'has a match in every class. Leave it out in one: that class gets every request that no other class matches.',
    )
  } else if (open.length > 1) {
    report('classes', `has several classes without a match (${open.join(', ')}). Give all but one a match.`)
  }
  for (const [i, name] of (importance ?? []).entries()) {
    if (!names.includes(name))
      report(`importance[${i}]`, `'${name}' is not a class (${names.join(', ')}).${fixOf(name)}`)
    else if (importance!.indexOf(name) < i)
      report(`importance[${i}]`, `'${name}' is in the list twice. Leave it out once.`)
  }
  const unranked = importance ? names.filter(name => !importance.includes(name)) : []
  if (unranked.length > 0) report('importance', `leaves out ${unranked.join(', ')}. Name every class.`)
  const ranked = namesByImportance(shedding)
  const firstOther = ranked.findIndex((_, rank) => !isCritical(shedding, rank))
  if (firstOther < 0) report('classes', 'are all critical, so none can be shed. Leave critical out of one.')
  for (const [rank, name] of ranked.entries())
    if (firstOther >= 0 && rank > firstOther && isCritical(shedding, rank))
      report(
        `classes[${names.indexOf(name)}].critical`,
        `true is on a class that is less important than ${ranked[firstOther]}, which is not critical. Change importance, or leave it out.`,
      )
  if (!fleetUsage && !workerUtilization) {
    report('classes', 'has no effect without a shedder. Add fleetUsage or workerUtilization.')
  }

  const fleet = compileFleetRules(shedding, ['free'], ALL_ALGORITHMS, undefined)
  const named = [...fleet, ...(compileShedding(shedding).workerUtilization?.rules ?? [])]
  const ownNames = [FLEET_USAGE, WORKER_UTILIZATION, ...named.map(({ name }) => name)]
  for (const [i, { name }] of rules.entries()) {
    if (ownNames.includes(name)) {
      const message = `'${name}' is the name of a shedder. Choose another name.`
      mistakes.push({ path: `rules[${i}].name`, message })
    }
  }

  if (fleetUsage) {
    const reserved = Object.entries(fleetUsage.reserved ?? {})
    for (const [name, value] of reserved) {
      const path = `fleetUsage.reserved.${name}`
      if (!names.includes(name)) report(path, `is not a class (${names.join(', ')}).${fixOf(name)}`)
      else if (name === namesByImportance(shedding).at(-1))
        report(path, `${value} has no effect: no class is less important. Leave it out.`)
    }
    const levels = fleetLevels(shedding)
    const [last] = levels.slice(-1)
    if (last && last.limit < 1) {
      report(
        'fleetUsage.reserved',
        `leaves ${last.limit} of ${fleetUsage.capacity} requests for ${last.name}. Reserve less, or raise the capacity.`,
      )
    }
  }

  if (workerUtilization) {
    const { signals, header, aggregate, staleAfter } = workerUtilization
    const { high = DEFAULT_SHEDDING.high, low = DEFAULT_SHEDDING.low } = workerUtilization
    if (low >= high) report('workerUtilization.low', `${low} is not below high (${high}). Lower it.`)
    if (signals.includes('in-flight') && !fleetUsage) {
      report('workerUtilization.signals', "'in-flight' needs fleetUsage.capacity. Add it.")
    }
    if (signals.includes('in-flight') && fleetUsage?.mode === 'off') {
      report(
        'workerUtilization.signals',
        "'in-flight' needs fleetUsage, whose mode is 'off'. Use 'shadow', or another signal.",
      )
    }
    if (header !== undefined && STANDARD.test(header)) {
      report(
        'workerUtilization.header',
        `'${header}' is a standard header, and would be removed from replies. Use a header of your own, such as 'x-utilization'.`,
      )
    }
    if (header !== undefined && !signals.includes('header')) {
      report(
        'workerUtilization.header',
        `'${header}' has no effect without the signal 'header'. Add the signal, or leave this out.`,
      )
    }
    if (aggregate !== undefined && !signals.includes('push')) {
      report(
        'workerUtilization.aggregate',
        "has no effect without the signal 'push': of the other signals, only the mean is known. Add the signal, or leave this out.",
      )
    }
    if (staleAfter !== undefined && !signals.includes('push')) {
      report(
        'workerUtilization.staleAfter',
        `'${staleAfter}' has no effect without the signal 'push'. Add the signal, or leave this out.`,
      )
    }
  }
  return mistakes
}

/**
 * Standard response headers. Clients need them, so none of them can carry the utilization: its header is removed
 * from replies.
 */
const STANDARD =
  /^(?:content-.*|set-cookie|location|cache-control|etag|vary|date|age|expires|last-modified|retry-after|ratelimit.*|access-control-.*|www-authenticate|strict-transport-security)$/i
