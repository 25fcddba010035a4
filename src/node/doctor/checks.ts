/** What a check of `npx sluicegate doctor` is, how checks are run, and the verdict over all of them. */
import { GatewayError } from '../../errors.ts'

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

export interface Check {
  /** Stable, so that programs can look for it. */
  name: string
  /** Without it, no other check can say anything, so a fault ends the examination. */
  isEssential?: true
  /** May throw: the error is then the finding. */
  run(): Promise<Finding>
}

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

/** A finding of a deeper layer. */
export class FindingError extends Error {
  readonly result: Finding

  constructor(result: Finding) {
    super(result.finding)
    this.result = result
  }
}

export interface Examination {
  /** True ends it before the next check. */
  isStopped(): boolean
  /** Called with each result when it is known. */
  note(checked: Checked): void
}

/** Runs checks one after the other. */
export async function runChecks(
  checks: readonly Check[],
  { isStopped, note }: Examination,
): Promise<Checked[]> {
  const all: Checked[] = []
  for (const { name, isEssential, run } of checks) {
    if (isStopped()) break
    const checked = { name, ...(await run().catch(findingOf)) }
    all.push(checked)
    note(checked)
    if (isEssential && checked.verdict === 'fault') break
  }
  return all
}

function findingOf(error: unknown): Finding {
  if (error instanceof FindingError) return error.result
  if (error instanceof GatewayError)
    return fault`${error.message} → Fix what the checks above name, and run this again.`
  const { name, code, cause } = error as Error & { code?: unknown; cause?: { code?: unknown } }
  const why = /^(Timeout|Abort)Error$/.test(name)
    ? 'no answer within 5 s'
    : String(cause?.code ?? code ?? name)
  return fault`The check failed: ${why}. → Check the URL and the network, and run this again.`
}

/** The verdict over all checks. What could not be found out does not change it. */
export type Overall = 'works' | 'works-with-limits' | 'do-not-deploy'

export function overallOf(all: readonly Checked[]): Overall {
  const has = (verdict: CheckVerdict) => all.some(checked => checked.verdict === verdict)
  return has('fault') ? 'do-not-deploy' : has('limit') ? 'works-with-limits' : 'works'
}

/** @param times ms */
export function latencyOf(times: readonly number[]): {
  text: string
  measured: Record<'p50_ms' | 'p95_ms' | 'p99_ms', number>
} {
  const sorted = times.toSorted((a, b) => a - b)
  // By nearest rank.
  const at = (share: number) => Math.round((sorted[Math.ceil(share * sorted.length) - 1] ?? 0) * 10) / 10
  const measured = { p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }
  return { text: `p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms`, measured }
}
