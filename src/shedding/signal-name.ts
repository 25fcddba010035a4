/** Names around the pushes of the origin's machines, in a file of their own: a Worker need not carry the rest. */

/** The variable that holds the secret that they show. */
export const UTILIZATION_SECRET = 'SLUICE_UTILIZATION_SECRET'

/** The signal that they push to. */
export const UTILIZATION_SIGNAL = 'worker-utilization'
