/** What a check of `npx sluicegate doctor` is, and works on; how checks are run, and the verdict over all of them. */
import type { Config } from '../../config/compile.ts'
import { GatewayError } from '../../errors.ts'
import type { Store } from '../../store/store.ts'
import type { RestAnswer, RestCommand } from '../../store/upstash-client.ts'
import { describeTlsFailure } from '../tls-failure.ts'
import { type CheckVerdict, type Finding, fault, isLate } from './findings.ts'

/** By names that stay, so that programs can look for them; in their order. A check may throw: the error is then its finding. */
export type Checks = Readonly<Record<string, () => Finding | Promise<Finding>>>

/** What the checks of a store work on, over the REST protocol or directly. All keys are in the key space of the examination. */
export interface Bed {
  config: Config
  isRest: boolean
  /** Sends commands in one trip. Errors of single commands are answers. @throws whatever keeps all of them from being answered */
  send(commands: readonly RestCommand[], isTransaction?: boolean): Promise<readonly RestAnswer[]>
  decisions: Store
  /** A key of a check. All of them are in one slot of a cluster. */
  key(name: string): string
}

/** How long keys of checks live if they cannot be removed (s). The states of rules live as long as their periods. */
export const KEY_SECONDS = 900

/** If one of these finds a fault, no other check can say anything, so it ends the examination. */
const ESSENTIAL = /^((store|gateway)-(address|tls)|protocol|health)$/

export type Checked = Finding & { name: string }

/** `isStopped` ends it before the next check; `note` gets each result when it is known. */
export type Examination = { isStopped(): boolean; note(checked: Checked): void }

/** Runs checks one after the other, until one of them gets no answer in time: each further request would wait as long. */
export async function runChecks(checks: Checks, { isStopped, note }: Examination, what = 'store') {
  const names = Object.keys(checks)
  for (const [i, name] of names.entries()) {
    if (isStopped()) return
    let isLast = ESSENTIAL.test(name)
    const finding = await Promise.resolve()
      .then(checks[name])
      .catch(error => {
        if (!isLate(error)) return findingOf(error)
        isLast = true
        const others = names.slice(i + 1).join(', ')
        return fault`The ${what} stopped answering: a request got no answer in time.${others && ` Not checked: ${others}.`} → Look at the load and the log of the ${what}, and of any server behind it, and run this again.`
      })
    note({ name, ...finding })
    if (isLast && finding.verdict === 'fault') return
  }
}

function findingOf(error: Error & { code?: unknown; cause?: { code?: unknown } | Finding }): Finding {
  const { name, code, message, cause } = error
  if (cause && 'verdict' in cause) return cause
  const isOfStore = error instanceof GatewayError
  const [what, fix] = describeTlsFailure(message, false) ?? [
    isOfStore ? message : `The check failed: ${cause?.code ?? code ?? name}.`,
    code === 'ERR_STORE_REFUSED'
      ? 'Fix what the checks above name, and run this again.'
      : `Check the URL${isOfStore ? ' (of a Redis with TLS: rediss://)' : ''} and the network, and run this again.`,
  ]
  return fault`${what} → ${fix}`
}

/** The verdict over all checks. What could not be found out does not change it. */
export function overallOf(all: readonly Checked[]): 'works' | 'works-with-limits' | 'do-not-deploy' {
  const has = (verdict: CheckVerdict) => all.some(checked => checked.verdict === verdict)
  return has('fault') ? 'do-not-deploy' : has('limit') ? 'works-with-limits' : 'works'
}
