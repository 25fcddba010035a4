/**
 * Evaluates rules in the store. Fails if the store makes no decision, because a request that passes uncounted would make any limiter
 * look fast.
 */
import type { Config } from '../src/config/compile.ts'
import { bindRules } from '../src/limiter/bind.ts'
import { gatewayRuleSet } from '../src/script/compiled.ts'
import type { Evaluation, Outcome } from '../src/script/evaluation.ts'
import type { Caller } from '../src/set-ups/http/caller.ts'
import { demandRules } from '../src/set-ups/http/demand-rules.ts'
import type { Matched } from '../src/set-ups/http/match.ts'
import type { Store } from '../src/store/store.ts'
import { NO_SWITCHES } from '../src/switches/switches.ts'
import { evaluate } from '../test/support/evaluate.ts'

/** @throws Error if the store made no decision */
export async function evaluateInStore(store: Store, evaluation: Evaluation): Promise<Outcome> {
  const outcome = await evaluate(store, evaluation)
  if (outcome.status === 'degraded') throw new Error(`The store made no decision: ${outcome.cause}`)
  return outcome
}

/** The evaluation that the gateway sends to the store for a request. */
export async function evaluationOf(
  request: Request,
  caller: Caller,
  matched: Matched,
  { allow, rules: all, plans }: Pick<Config, 'allow' | 'rules' | 'plans'>,
): Promise<Evaluation> {
  const rules = demandRules(request, caller, matched, allow)
  const { credential } = caller
  return {
    rules: bindRules(rules, NO_SWITCHES, ({ name }) => name, Date.now()),
    ruleSet: gatewayRuleSet({ rules: all, plans }),
    ...(credential && { subject: credential.subject }),
  }
}
