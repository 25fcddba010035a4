/** Whether a server speaks the protocol of Upstash, as far as Sluice uses it (src/store/rest.ts). */
import { GatewayError } from '../../errors.ts'
import { type Check, type Finding, FindingError, fault, limit, ok } from './checks.ts'
import type { Answer, ExaminedStore } from './examined-store.ts'
import { randomWord } from './key-space.ts'

export const protocolChecks = ({ send, sendWith }: ExaminedStore): Check[] => [
  { name: 'protocol', isEssential: true, run: () => checkProtocol(send) },
  ...(sendWith ? [{ name: 'token', run: () => checkToken(sendWith) }] : []),
  { name: 'script-cache', run: () => checkUnknownScript(send) },
]

const PING = ['PING'] as const
/** What Sluice sends: a command, several, and a transaction. */
const FORMS: Readonly<Record<string, Parameters<ExaminedStore['send']>>> = {
  'a command': [[PING]],
  '/pipeline': [[PING, PING]],
  '/multi-exec': [[PING, PING], true],
}

const arePongs = (answers: readonly Answer[]) => answers.every(({ result }) => result === 'PONG')

async function checkProtocol(send: ExaminedStore['send']): Promise<Finding> {
  const [first] = await send([PING]).catch(error => {
    if (!(error instanceof GatewayError)) throw error
    throw new FindingError(
      fault`The URL answers with a web page or another text, and not with replies in JSON. → Copy UPSTASH_REDIS_REST_URL again. A proxy or a login page in front of the store must pass on its replies.`,
    )
  })
  // A user without PING can still count. Another check finds missing permissions.
  if (first?.error === undefined && first?.result !== 'PONG')
    return fault`The answer to PING is not that of a Redis. → Use the URL of an Upstash database or of the bridge.`
  const works = (form: string) =>
    send(...FORMS[form]!).then(
      answers => answers.length === 2,
      () => false,
    )
  if (!(await works('/pipeline')))
    return fault`The store does not answer several commands in one request (/pipeline). → Use an Upstash database or the bridge.`
  if (!(await works('/multi-exec')))
    return limit`The store has no transactions (/multi-exec), so \`limits correct\` fails. → Permit MULTI and EXEC to the Redis user, or use an Upstash database or the bridge.`
  return ok`The store answers commands, several at once, and transactions.`
}

/** Some servers check the token on one path only. */
async function checkToken(sendWith: NonNullable<ExaminedStore['sendWith']>): Promise<Finding> {
  const open: string[] = []
  for (const [name, form] of Object.entries(FORMS))
    if (await sendWith(randomWord(32), ...form).then(arePongs, () => false)) open.push(name)
  return open.length > 0
    ? fault`The store accepts a wrong token (${open.join(', ')}): anyone who reaches it can read and change all data. → Use a server that checks the token of each request, such as the bridge.`
    : ok`The store refuses a wrong token.`
}

async function checkUnknownScript(send: ExaminedStore['send']): Promise<Finding> {
  const [answer] = await send([['EVALSHA', randomWord(40).toLowerCase(), 0]]).catch((): Answer[] => [])
  return /^(NOSCRIPT|NOPERM|ERR unknown command)/.test(answer?.error ?? '')
    ? ok`A script that the store has lost is sent again (NOSCRIPT).`
    : fault`A script that the store does not have is not answered with NOSCRIPT, so it is not sent again: after a restart of the store, every decision fails. → Use an Upstash database or the bridge. A server in between must not change errors.`
}
