/** What a check of `npx sluicegate doctor` is, how checks are run, and the verdict over all of them. */
import { GatewayError } from '../../errors.ts'
import { describeTlsFailure } from '../tls-failure.ts'

/** `limit`: it works, with a limitation. `fault`: do not deploy. `unknown`: it could not be found out here. */
export type CheckVerdict = 'ok' | 'limit' | 'fault' | 'unknown'

/** The texts quote no text of a server, because that can have hosts, keys and passwords. */
export interface Finding {
  verdict: CheckVerdict
  finding: string
  /** What to do. Absent: nothing. */
  fix?: string
  /** Numbers behind the finding, by names with their unit, such as `p99_ms`. */
  measured?: Readonly<Record<string, number>>
}

/** By names that stay, so that programs can look for them; in their order. A check may throw: the error is then its finding. */
export type Checks = Readonly<Record<string, () => Finding | Promise<Finding>>>

/** If one of these finds a fault, no other check can say anything, so it ends the examination. */
const ESSENTIAL = /-(address|tls)$|^(protocol|health)$/

export type Checked = Finding & { name: string }

/** The tags of templates that make findings: `finding → fix`. */
export function findings(measured?: Finding['measured']) {
  const tag =
    (verdict: CheckVerdict) =>
    (texts: TemplateStringsArray, ...values: readonly (string | number)[]): Finding => {
      const [finding = '', fix] = String.raw({ raw: texts }, ...values).split(' → ')
      return { verdict, finding, ...(fix !== undefined && { fix }), ...(measured && { measured }) }
    }
  return { ok: tag('ok'), limit: tag('limit'), fault: tag('fault'), unknown: tag('unknown') }
}

export const { ok, limit, fault, unknown } = findings()

/** The finding of the first pattern that the text matches, in any case of letters. */
export const findIn = (text: string, table: Readonly<Record<string, Finding>>): Finding | undefined =>
  Object.entries(table).find(([pattern]) => new RegExp(pattern, 'i').test(text))?.[1]

/** An error to throw whose finding is known. */
export const errorWith = (finding: Finding) => new Error(finding.finding, { cause: finding })

/** `isStopped` ends it before the next check; `note` gets each result when it is known. */
export type Examination = { isStopped(): boolean; note(checked: Checked): void }

/** Runs checks one after the other. */
export async function runChecks(checks: Checks, { isStopped, note }: Examination): Promise<void> {
  for (const [name, run] of Object.entries(checks)) {
    if (isStopped()) return
    const finding = await Promise.resolve().then(run).catch(findingOf)
    note({ name, ...finding })
    if (finding.verdict === 'fault' && ESSENTIAL.test(name)) return
  }
}

function findingOf(error: Error & { code?: unknown; cause?: { code?: unknown } | Finding }): Finding {
  const { name, code, message, cause } = error
  if (cause && 'verdict' in cause) return cause
  const tls = describeTlsFailure(message, false)
  if (tls) return fault`${tls[0]} → ${tls[1]}`
  if (!(error instanceof GatewayError)) {
    const isLate = /^(Timeout|Abort)Error$/.test(name)
    return fault`The check failed: ${isLate ? 'no answer in time' : String(cause?.code ?? code ?? name)}. → Check the URL and the network, and run this again.`
  }
  return error.code === 'ERR_STORE_REFUSED'
    ? fault`${message} → Fix what the checks above name, and run this again.`
    : fault`${message} → Check the URL (of a Redis with TLS: rediss://) and the network, and run this again.`
}

/** The verdict over all checks. What could not be found out does not change it. */
export type Overall = 'works' | 'works-with-limits' | 'do-not-deploy'

export function overallOf(all: readonly Checked[]): Overall {
  const has = (verdict: CheckVerdict) => all.some(checked => checked.verdict === verdict)
  return has('fault') ? 'do-not-deploy' : has('limit') ? 'works-with-limits' : 'works'
}
