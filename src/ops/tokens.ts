/**
 * Service tokens for the HTTP API: created, listed, revoked and rotated. The store never has a token, only its SHA-256. A token can make,
 * revoke and rotate only tokens that have no other scopes than itself and end no later.
 */

import { chunked } from '../chunked.ts'
import {
  looksLikeServiceToken,
  mintServiceToken,
  readServiceToken,
  serviceTokenId,
} from '../credentials/service-token.ts'
import { missingScopes } from '../scopes.ts'
import { sha256 } from '../sha256.ts'
import { TOKEN_INDEX_KEY, tokenKey } from '../store/keys.ts'
import { formatToken, parseToken, type TokenRecord } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore, BeforeCreation, HeldClaim, Write } from './admin-store-shape.ts'
import { recordFacts } from './audit-facts.ts'
import { distinguishingDigits, findDigest, notFound } from './digits.ts'
import { earlier, endsOf, mustHaveNoSuccessor, writeSuccession } from './rotation.ts'
import {
  allOf,
  type Page,
  type PageRequest,
  READ_AT_ONCE,
  readIndex,
  readPage,
  removeFromIndex,
  unlistIfGone,
} from './sorted-index.ts'
import type { CreatedToken, FoundToken, RotatedToken, Rotation, TokenInfo } from './token-shape.ts'
import { ANY, setCommand, write } from './write.ts'

export type { CreatedToken, FoundToken, RotatedToken, TokenInfo } from './token-shape.ts'

export interface NewToken extends Pick<TokenRecord, 'name' | 'scopes'> {
  /** Absent: never. */
  expiresAt?: Date | undefined
  by?: string | undefined
}

/** A token before it is stored. */
interface MintedToken {
  token: string
  digest: string
  id: string
}

/** The token that asks for a change. */
export type TokenMaker = Pick<TokenRecord, 'scopes' | 'expiresAt'>

export interface TokenOptions {
  /** Absent: an operator with the token of the store, who can do everything. */
  maker?: TokenMaker | undefined
  before?: BeforeCreation | undefined
}

function mintToken({ environment }: AdminStore): MintedToken {
  const token = mintServiceToken(environment)
  const digest = sha256(token)
  return { token, digest, id: serviceTokenId(digest) }
}

/** @param newToken with scopes that exist @throws AdminError `forbidden` if the maker has not all of them, or ends before the new token */
export async function createToken(
  store: AdminStore,
  newToken: NewToken,
  { maker, before }: TokenOptions = {},
): Promise<CreatedToken> {
  const record = recordOf(newToken, maker)
  const minted = mintToken(store)
  const claim = await before?.(minted.id)
  await create(store, minted, record, { claim })
  return { ...minted, ...record }
}

function recordOf({ name, scopes, expiresAt, by }: NewToken, maker: TokenMaker | undefined): TokenRecord {
  const record = {
    ...{ name, scopes: [...new Set(scopes)], createdAt: new Date() },
    ...(expiresAt && { expiresAt }),
    ...(by !== undefined && { by }),
  }
  mustInclude(maker, record, 'The new token')
  return record
}

/** @param options.replaces id of the token that it replaces */
export async function create(
  store: AdminStore,
  minted: MintedToken,
  record: TokenRecord,
  { claim, replaces }: { claim?: HeldClaim | undefined; replaces?: string },
): Promise<void> {
  await write(store, {
    ...{ ...writeOfToken(store, minted, record), claim },
    entry: { action: 'tokens.create', target: minted.id, after: { ...recordFacts(record), replaces } },
  }).catch(store.advice?.lostToken(minted.id))
}

function writeOfToken(
  store: AdminStore,
  { digest }: MintedToken,
  record: TokenRecord,
): Pick<Write, 'keys' | 'commands' | 'listed'> {
  const key = store.at(tokenKey(digest))
  return {
    ...{ keys: [key], commands: [setCommand(key, formatToken(record), record.expiresAt)] },
    listed: { index: store.at(TOKEN_INDEX_KEY), member: digest, records: [key] },
  }
}

/** Lists the tokens in the order of their creation. Removes expired tokens from the index. */
export async function listTokens(store: AdminStore): Promise<TokenInfo[]> {
  const digests = await store.run<string[]>(...allOf(store.at(TOKEN_INDEX_KEY)))
  const digits = distinguishingDigits(digests)
  const tokens: TokenInfo[] = []
  for (const some of chunked(digests, READ_AT_ONCE)) tokens.push(...(await readTokens(store, some, digits)))
  return tokens.sort((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || (a.id < b.id ? -1 : 1))
}

/** Reads a page of the tokens, in the order of their ids. */
export async function readTokenPage(store: AdminStore, page: PageRequest): Promise<Page<TokenInfo>> {
  const index = store.at(TOKEN_INDEX_KEY)
  const positionOf = ({ id }: TokenInfo) => [id]
  return await readPage(page, positionOf, async (after, count) => {
    const { members, known } = await readIndex(store, { index, after: after?.[0] }, count)
    const items = await readTokens(store, members, distinguishingDigits(known))
    return { items, ...(members.length === count && { end: [members.at(-1)!] }) }
  })
}

/** @param digits of their ids */
async function readTokens(
  store: AdminStore,
  digests: readonly string[],
  digits: number,
): Promise<TokenInfo[]> {
  const texts = await readAll(store, digests)
  await prune(
    store,
    digests.filter((_, i) => texts[i] === null),
  )
  return digests.flatMap((digest, i): TokenInfo[] => {
    const record = parseToken(texts[i] ?? '')
    return record ? [{ id: serviceTokenId(digest, digits), ...record }] : []
  })
}

const ID = /^[0-9a-f]{4,64}$/

/**
 * @param text an id, or the token itself. It may be a secret, so no message repeats it unless it is an id
 * @throws AdminError if no token or more than one matches
 */
export const findToken = async (store: AdminStore, text: string): Promise<FoundToken> =>
  ID.test(text) ? await findTokenById(store, text) : await readFound(store, byToken(store, text))

/** @param prefix the first digits of its digest @throws AdminError if no token or more than one matches */
export async function findTokenById(store: AdminStore, prefix: string): Promise<FoundToken> {
  const found = await findDigest(store, 'token', store.at(TOKEN_INDEX_KEY), prefix, serviceTokenId)
  if (!found) throw notFound(store, 'token', prefix)
  return await readFound(store, found)
}

async function readFound(store: AdminStore, { digest, id }: Omit<FoundToken, 'record'>): Promise<FoundToken> {
  const text = await store.run<string | null>('GET', store.at(tokenKey(digest)))
  return { id, digest, record: validRecord(store, id, text ?? '') }
}

/** @throws AdminError `not-found` if the text is not a record: the token has ended or was revoked */
function validRecord(store: AdminStore, id: string, text: string): TokenRecord {
  const record = parseToken(text)
  if (record) return record
  throw notFound(store, 'token', id)
}

/**
 * Revokes a token. Isolates that have checked it lately admit it for at most one more second.
 * @returns false if it was revoked before
 * @throws AdminError `forbidden`
 */
export async function revokeToken(
  store: AdminStore,
  { id, digest, record }: FoundToken,
  maker?: TokenMaker,
): Promise<boolean> {
  mustInclude(maker, record, `Token '${id}'`)
  // The index last, because a repeated call still finds the token if this one ends in between.
  const key = store.at(tokenKey(digest))
  const isRevoked = await write(store, {
    ...{ keys: [key], onlyIf: [[key, ANY]], commands: [['DEL', key]] },
    entry: { action: 'tokens.revoke', target: id, before: recordFacts(record) },
  })
  await store.run(...removeFromIndex(store.at(TOKEN_INDEX_KEY), [digest]))
  return isRevoked
}

/**
 * Replaces a token by a new one with the same name, scopes and lifetime, which ends with the maker at the latest: all or nothing, but for a
 * cluster, which has the two in different slots. If the end of the old token cannot be set there because of the store, the new one is
 * returned all the same, because it is valid and cannot be shown again (tokens-on-cluster.ts).
 * @param overlapMs how long the old token stays valid
 * @throws AdminError `forbidden`, and for a token that is being replaced already, or is revoked meanwhile
 */
export async function rotateToken(
  store: AdminStore,
  old: FoundToken,
  overlapMs: number,
  { maker, by, before }: TokenOptions & { by?: string } = {},
): Promise<RotatedToken> {
  const { id, record } = old
  const { name, scopes } = record
  mustInclude(maker, record, `Token '${id}'`)
  mustHaveNoSuccessor('Token', id, record)
  const { endsAt, nextEnd } = endsOf(record, overlapMs)
  const expiresAt = nextEnd ? earlier(nextEnd, maker?.expiresAt) : maker?.expiresAt
  const next = recordOf({ name, scopes, expiresAt, by }, maker)
  const minted = mintToken(store)
  const claim = await before?.(minted.id)
  const created = { ...minted, ...next }
  const rotation = { old, created, next, endsAt }
  if (store.decisions.isCluster) return await store.onCluster.rotateToken(store, rotation, claim)
  await writeRotation(store, rotation, { ...writeOfToken(store, minted, next), claim }).catch(
    store.advice?.lostToken(minted.id),
  )
  return { created, oldEndsAt: endsAt }
}

/** Ends the old token. @param next what else is written in the same run @throws AdminError if the token is being replaced already, or has ended */
export async function writeRotation(
  store: AdminStore,
  { old: { id, digest }, created: successor, endsAt }: Rotation,
  next: Pick<Write, 'keys' | 'commands' | 'claim' | 'listed'>,
): Promise<void> {
  const succession = {
    ...({ action: 'tokens.rotate', what: 'Token', key: store.at(tokenKey(digest)), id } as const),
    ...{ endsAt, successor, format: formatToken },
    read: (text: string) => validRecord(store, id, text),
  }
  await writeSuccession(store, succession, next)
  if (endsAt <= new Date())
    await store.run(...removeFromIndex(store.at(TOKEN_INDEX_KEY), [digest])).catch(() => 0)
}

function mustInclude(maker: TokenMaker | undefined, token: TokenMaker, what: string): void {
  if (!maker) return
  const missing = missingScopes(maker.scopes, token.scopes)
  if (missing.length > 0)
    throw new AdminError('forbidden', `${what} has scopes that your token has not: ${missing.join(', ')}.`)
  if (maker.expiresAt && !(token.expiresAt && token.expiresAt <= maker.expiresAt))
    throw new AdminError(
      'forbidden',
      `${what} must end no later than your token: ${maker.expiresAt.toISOString()}.`,
    )
}

export const readAll = (store: AdminStore, digests: readonly string[]) =>
  store.runEach<string | null>(digests.map(digest => ['GET', store.at(tokenKey(digest))]))

async function prune(store: AdminStore, gone: readonly string[]): Promise<void> {
  if (gone.length === 0) return
  const records = gone.map(digest => store.at(tokenKey(digest)))
  await unlistIfGone(store, store.at(TOKEN_INDEX_KEY), gone, records)
}

function byToken({ environment }: AdminStore, text: string): Omit<FoundToken, 'record'> {
  const form = readServiceToken(text)
  const where = environment === undefined ? '' : ` of environment '${environment}'`
  if (form && form.environment === environment) {
    const digest = sha256(text)
    return { digest, id: serviceTokenId(digest) }
  }
  throw looksLikeServiceToken(text)
    ? new AdminError('not-found', `This is not a token${where}. Check that it was copied whole.`)
    : new AdminError(
        'usage',
        "This is not a token. Use its ID, such as '0f3a9c1d2b4e' (npx sluicegate tokens list), or the token itself.",
      )
}
