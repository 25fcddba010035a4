/** What a config says of leases: the shape of `lease`, of the config and of one rule. */
import * as v from 'valibot'
import { duration, settings } from './values.ts'

const LEASE = "is not a lease. Write it like { for: '250ms' }"

const entries = {
  /** How long an isolate may admit requests without asking the store again; what is left then is given back. */
  for: duration(50e3, 10e6, "from '50ms' to '10s'"),
}

/** For all rules that can have one. */
export const lease = settings(entries, `${LEASE}.`)

const leaseOfRule = settings(entries, `${LEASE}, or false.`)

/** For one rule: `false` where that of the config is not for it. */
export const ruleLease = v.lazy(input => (input === false ? v.literal(false) : leaseOfRule))
