/** Makes the schemas of an algorithm's parameters from its descriptor. */
import * as v from 'valibot'
import { CALENDAR_PERIODS } from '../../algorithms/calendar-period.ts'
import { MAX_TTL } from '../../algorithms/concurrency.ts'
import type { Parameter, Parameters } from '../../algorithms/descriptor.ts'
import { type AlgorithmName, descriptions } from '../../algorithms/index.ts'
import { didYouMean } from './did-you-mean.ts'
import { duration, oneOf, text, units } from './values.ts'

const MAX_PERIOD = 366 * 86400e6

const period = duration(1e3, MAX_PERIOD, "from '1ms' to '366d'")

const ttl = duration(1e6, MAX_TTL, "from '1s' to '1h'")

const calendarPeriod = v.union([v.picklist(CALENDAR_PERIODS), period], ({ input }) => {
  // For a duration out of range, the message names the range. For anything else, it names both ways to write a period.
  const message = v.safeParse(period, input).issues?.[0].message
  return message?.startsWith('is out of range')
    ? message
    : `is not a period.${didYouMean(input, CALENDAR_PERIODS)} Write a duration in quotes, as in '1s' or '1h', or 'day', 'week' or 'month' of the calendar.`
})

const TIME_ZONE = "is not a time zone. Write an IANA name, as in 'Europe/Berlin'."

const timeZone = v.pipe(
  text(TIME_ZONE),
  v.check(input => {
    try {
      return Boolean(new Intl.DateTimeFormat('en', { timeZone: input }))
    } catch {
      return false
    }
  }, TIME_ZONE),
)

type RequiredSchemaOf<P extends Parameter> = P extends { kind: 'name'; is: infer Name extends string }
  ? v.LiteralSchema<Name, undefined>
  : P extends { kind: 'units' }
    ? ReturnType<typeof units>
    : P extends { kind: 'period' }
      ? typeof period
      : P extends { kind: 'ttl' }
        ? typeof ttl
        : P extends { kind: 'calendar-period' }
          ? typeof calendarPeriod
          : P extends { kind: 'word'; words: infer Words extends readonly string[] }
            ? ReturnType<typeof oneOf<Words>>
            : typeof timeZone

type SchemaOf<P extends Parameter> = P extends { isOptional: true }
  ? v.OptionalSchema<RequiredSchemaOf<P>, undefined>
  : RequiredSchemaOf<P>

/** A mapped type, so that editors show the doc comments of the parameters. */
type EntriesOf<P extends Parameters> = { [K in keyof P]: SchemaOf<P[K]> }

export type AlgorithmEntries<Name extends AlgorithmName> = EntriesOf<
  (typeof descriptions)[Name]['parameters']
>

/** The schemas of the algorithm's parameters, by name. */
export function algorithmEntries<Name extends AlgorithmName>(name: Name): AlgorithmEntries<Name> {
  const entries = Object.entries<Parameter>(descriptions[name].parameters)
  return Object.fromEntries(
    entries.map(([key, parameter]) => [key, schemaOf(parameter, name)]),
  ) as AlgorithmEntries<Name>
}

function schemaOf(parameter: Parameter, algorithm: AlgorithmName): v.GenericSchema {
  const schema = requiredSchemaOf(parameter, algorithm)
  return 'isOptional' in parameter ? v.optional(schema) : schema
}

function requiredSchemaOf(parameter: Parameter, algorithm: AlgorithmName): v.GenericSchema {
  switch (parameter.kind) {
    case 'name':
      return v.literal(parameter.is)
    case 'units':
      return units(parameter.low, parameter.high, parameter.high === undefined ? undefined : algorithm)
    case 'period':
      return period
    case 'ttl':
      return ttl
    case 'calendar-period':
      return calendarPeriod
    case 'time-zone':
      return timeZone
    case 'word':
      return oneOf(parameter.words, `is not a ${parameter.what}`)
  }
}
