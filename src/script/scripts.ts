/**
 * Compiles the scripts of a policy when they are first needed. A built Worker does not carry this compiler: its scripts were
 * compiled before (built-scripts.ts).
 */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import type { PolicyScripts, PolicyShape } from './policy-shape.ts'
import { decideText, refundText } from './policy-text.ts'

/**
 * The scripts of a policy. Each is compiled at its first use.
 * @param loopsFrom for tests, which also compile small policies to loops
 */
export function compileScripts(shape: PolicyShape, loopsFrom?: number): PolicyScripts {
  let decide: Script | undefined
  let refund: Script | undefined
  return {
    get decide() {
      decide ??= createScript(decideText(shape, loopsFrom))
      return decide
    },
    get refund() {
      refund ??= createScript(refundText(shape, loopsFrom))
      return refund
    },
  }
}
