/** How long tests wait for something whose duration is not tested (ms). Long, because a machine under load is slow. */
export const PATIENT_MS = 20_000

/** The same, for `vi.waitFor` and `vi.waitUntil`. By default they look only every 50 ms, which is longer than most such things take. */
export const PATIENT = { timeout: PATIENT_MS, interval: 5 }
