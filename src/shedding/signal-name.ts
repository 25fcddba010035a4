/** Names for the pushes of the origin's machines. They have a file of their own, so that a Worker need not carry the rest. */

/** The variable with the secret that machines must send. */
export const UTILIZATION_SECRET = 'SLUICE_UTILIZATION_SECRET'

/** The signal that machines push to. */
export const UTILIZATION_SIGNAL = 'worker-utilization'
