/** How long tests wait for something whose duration is not tested (ms). Long, because a machine under load is slow. */
export const PATIENT_MS = 20_000
