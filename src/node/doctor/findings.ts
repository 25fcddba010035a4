/** What a check of `npx sluicegate doctor` finds. */

/** `limit`: it works, with a limitation. `fault`: do not deploy. `unknown`: it could not be found out here. */
export type CheckVerdict = 'ok' | 'limit' | 'fault' | 'unknown'

/** The texts quote no text of a server and nothing that was given to the command, because those can have hosts, keys and passwords. */
export interface Finding {
  verdict: CheckVerdict
  finding: string
  /** What to do. Absent: nothing. */
  fix?: string
  /** Numbers behind the finding, by names with their unit, such as `p99_ms`. */
  measured?: Readonly<Record<string, number>>
}

/** The tag of templates that make findings: `finding → fix`, or `${condition}: finding → fix`, which is empty if the condition is not met. */
const tag =
  (verdict: CheckVerdict) =>
  (texts: TemplateStringsArray, ...values: readonly (string | number | boolean)[]): Finding => {
    const text = String.raw({ raw: texts }, ...values).replace(/^false: .*|^true: /s, '')
    const [finding = '', fix] = text.split(' → ')
    return { verdict, finding, ...(fix !== undefined && { fix }) }
  }

export const [ok, limit, fault, unknown] = [tag('ok'), tag('limit'), tag('fault'), tag('unknown')]

/** The first one that is not empty. The last one has no condition. */
export const firstOf = (...all: readonly Finding[]): Finding => all.find(({ finding }) => finding)!

/** The finding of the first pattern that the text matches, in any case of letters. */
export const findIn = (text: string, table: Readonly<Record<string, Finding>>): Finding | undefined =>
  Object.entries(table).find(([pattern]) => new RegExp(pattern, 'i').test(text))?.[1]

/** An error to throw whose finding is known. */
export const errorWith = (finding: Finding) => new Error(finding.finding, { cause: finding })

/** Whether a request got no answer in time: by fetch, by a decision, or by Redis itself. */
export const isLate = ({ name, code, reason }: Partial<Record<'name' | 'code' | 'reason', unknown>>) =>
  name === 'TimeoutError' || code === 'ERR_STORE_TIMEOUT' || reason === 'timeout'
