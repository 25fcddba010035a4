/** A log without a bound, for parts of an isolate that are tested alone. */
import { createLog } from '../../src/log.ts'

export const UNBOUNDED_LOG = createLog(Number.POSITIVE_INFINITY, () => 0)
