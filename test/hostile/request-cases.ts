/** What each form of request must not do. */
import { beforeAll, describe, it } from 'vitest'
import { openClient } from './client.ts'
import { expectNoFaults } from './faults.ts'
import type { HostileBed } from './gateways.ts'
import { reply, type Seen } from './origin.ts'
import { askForOwn } from './origin-cases.ts'
import { REQUEST_FORMS, type RequestForm, SMUGGLED } from './request-forms.ts'
import { pause, type Step } from './steps.ts'
import { type Message, statusOf } from './wire.ts'

/** How long a client waits for a reply or for the end of its connection. */
const HANG_MS = 5000
/** How long a form may go without a reply whose end the gateway waits for. */
const WAIT_MS = 300
/** The time in which another client must get a reply. */
const PROMPT_MS = 2000

export function describeRequestForms(bedOf: () => HostileBed): void {
  describe('a client that sends', () => {
    beforeAll(async () => {
      const { origin, url, keys } = bedOf()
      await origin.reset()
      origin.routes.set('413', { isEarly: true, steps: () => [reply('', '', '413 Content Too Large')] })
      const client = openClient(url)
      await client.send([fill('GET /used-up HTTP/1.1\r\n{H}\r\n', keys.attacker, -1)])
      await client.until(1, HANG_MS)
      client.destroy()
    })

    const cases = REQUEST_FORMS.map((form, index) => ({ form, index, title: form.name }))
    it.concurrent.each(cases)('$title', async ({ form, index }) => {
      expectNoFaults(bedOf(), form.name, await sendForm(bedOf(), form, index))
    })
  })
}

/** @returns what went wrong */
async function sendForm(bed: HostileBed, form: RequestForm, index: number): Promise<string[]> {
  const { origin, url, keys, gateway } = bed
  const faults: string[] = []
  const client = openClient(url, form.methods)
  await client.send(stepsOf(form, keys.attacker, index))
  // The last request has `Connection: close`, so there are all replies, or the connection is closed.
  const count = Math.max(1, form.statuses?.length ?? form.may.length)
  if (!(await client.until(count, form.verdict === 'waits' ? WAIT_MS : HANG_MS)) && form.verdict !== 'waits')
    faults.push(
      `${client.replies.length} of ${count} replies, and no end of the connection, within ${HANG_MS} ms`,
    )

  const other = await Promise.race([
    askForOwn(bed, keys.victim),
    pause(PROMPT_MS).then(() => `no reply within ${PROMPT_MS} ms`),
  ])
  client.destroy()
  bed.mustBeWell()
  if (other) return [`another client: ${other}`]
  if (gateway === 'workerd' && form.platform !== undefined) return []

  const seen = origin.seen.filter(({ headers }) => formOf(headers) === String(index))
  const lines = seen.map(lineOf)
  if (!isPartOf(lines, form.may))
    faults.push(`the origin got ${lines.join(', ')}, of ${form.may.join(', ') || 'nothing'}`)
  faults.push(...origin.malformed.splice(0).map(what => `the gateway has sent ${what}`))
  if (client.malformed) faults.push(`a malformed reply: ${client.malformed}`)
  const statuses = client.replies.map(statusOf)
  if (form.verdict === 'accepted') faults.push(...faultsOfAccepted(form, statuses, lines))
  const [expected] = form.may
  const first = expected && seen.find(request => fits(lineOf(request), expected))
  if (form.body !== undefined && first && first.body !== form.body)
    faults.push(`the origin got the body ${JSON.stringify(first.body)}`)
  if (form.verdict === 'refused' && statuses.length > 0 && statuses[0]! < 400)
    faults.push(`status ${statuses[0]}`)
  // workerd has one error for an origin that closes the connection and for a client whose body is not valid.
  if (gateway === 'serve' && statuses.some(status => status >= 500 && status !== 501 && status !== 505))
    faults.push(`statuses ${statuses}`)
  if (form.statuses && !form.statuses.slice(0, statuses.length).every((status, i) => status === statuses[i]))
    faults.push(`statuses ${statuses}, not ${form.statuses}`)
  return faults
}

const formOf = (headers: Message['headers']) => headers.find(([name]) => name.toLowerCase() === 'x-form')?.[1]
const lineOf = ({ method, target }: Seen) => `${method} ${target}`

function stepsOf({ steps, packets }: RequestForm, key: string, index: number): Step[] {
  const filled = steps.map(step => (typeof step === 'string' ? fill(step, key, index) : step))
  const [text] = filled
  if (!packets || typeof text !== 'string') return filled
  const ends = packets(text.length).map(end => (end < 0 ? text.length + end : end))
  return [0, ...ends].flatMap((start, i, all) => [text.slice(start, all[i + 1] ?? text.length), 2])
}

function faultsOfAccepted(form: RequestForm, statuses: number[], lines: string[]): string[] {
  const faults: string[] = []
  if (lines.length < form.may.length) faults.push(`the origin got only ${JSON.stringify(lines)}`)
  if (statuses.length !== form.may.length || statuses.some(status => status !== 200))
    faults.push(`statuses ${statuses.join(', ') || '(none)'}`)
  return faults
}

/** Whether the requests are among those that may come, each once at most. */
function isPartOf(lines: readonly string[], may: RequestForm['may']): boolean {
  const left = [...may]
  return lines.every(line => {
    const i = left.findIndex(what => fits(line, what))
    if (i >= 0) left.splice(i, 1)
    return i >= 0
  })
}

const fits = (line: string, what: string | RegExp) =>
  typeof what === 'string' ? line === what : what.test(line)

/** Fills in the headers of a valid request, with the number of the form. */
function fill(text: string, key: string, index: number): string {
  const known = `X-API-Key: ${key}\r\nX-Form: ${index}\r\n`
  const filled = (part: string) => part.replaceAll('{H}', `Host: a.test\r\n${known}`).replaceAll('{K}', known)
  return filled(text).replaceAll('{SMUGGLED-LENGTH}', String(filled(SMUGGLED).length))
}
