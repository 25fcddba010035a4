/**
 * The scripts of a policy, compiled when they are first needed. The Worker carries no compiler: it has those that were built
 * (built-scripts.ts).
 */
import type { Script } from '../store/store.ts'
import type { PolicyScripts, PolicyShape } from './policy-shape.ts'
import { decideText, refundText } from './policy-text.ts'
import { scriptOf } from './script-of.ts'

export function compileScripts(shape: PolicyShape): PolicyScripts {
  let decide: Script | undefined
  let refund: Script | undefined
  return {
    get decide() {
      decide ??= scriptOf(decideText(shape))
      return decide
    },
    get refund() {
      refund ??= scriptOf(refundText(shape))
      return refund
    },
  }
}
