/**
 * Compiles the scripts of a rule set when they are first needed. A built Worker does not carry this compiler: its scripts were
 * compiled before (built-scripts.ts).
 */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import { RESERVATION_WIRE } from './reservation-wire.ts'
import type { RuleSetScripts, RuleSetShape } from './rule-set-shape.ts'
import { decideText, refundText, settleText } from './rule-set-text.ts'

/**
 * The scripts of a rule set. Each is compiled at its first use.
 * @param loopsFrom for tests, which also compile small rule sets to loops
 */
export function compileScripts(shape: RuleSetShape, loopsFrom?: number): RuleSetScripts {
  let decide: Script | undefined
  let refund: Script | undefined
  let settle: Script | undefined
  const settles = shape.entries.some(({ settlement }) => settlement)
  return {
    ...(settles && { reservations: RESERVATION_WIRE }),
    get decide() {
      decide ??= createScript(decideText(shape, loopsFrom))
      return decide
    },
    get refund() {
      refund ??= createScript(refundText(shape, loopsFrom))
      return refund
    },
    get settle() {
      if (settles) settle ??= createScript(settleText(shape))
      return settle
    },
  }
}
