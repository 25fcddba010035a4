/** The schemas of `lease`, for the config and for one rule. */
import * as v from 'valibot'
import { duration, settings } from './values.ts'

const LEASE = "is not a lease. Write it like { for: '250ms' }"

const entries = {
  /**
   * For how long an isolate may admit requests without asking the store again. It begins when the isolate asks. At the end, the isolate
   * gives the remaining units back.
   */
  for: duration(50e3, 10e6, "from '50ms' to '10s'"),
}

/** The default of all rules that can have a lease. */
export const lease = settings(entries, `${LEASE}.`)

const leaseOfRule = settings(entries, `${LEASE}, or false.`)

/** The lease of one rule. `false`: the default of the config does not apply. */
export const ruleLease = v.lazy(input => (input === false ? v.literal(false) : leaseOfRule))
