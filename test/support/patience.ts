/** For what a test waits for without being about its duration: a machine under load is slow (ms). */
export const PATIENT_MS = 20_000
