/** Serves the routes of administration: checks the token, reads the input, and makes each change in the name of the token. */
import { AdminError } from '../../ops/admin-error.ts'
import { withActor } from '../../ops/admin-store-on.ts'
import type { AdminStore } from '../../ops/admin-store-shape.ts'
import { parseShortText } from '../../ops/names.ts'
import { bearerOf } from './authenticate.ts'
import { createClaim } from './idempotency.ts'
import type { ApiOnCluster } from './on-cluster.ts'
import { parsed } from './parse-input.ts'
import { ApiError } from './problems.ts'
import { readInput } from './read-input.ts'
import { type ChangeContext, type ServeAdmin, scopesOf } from './route.ts'
import { adminError } from './store-error.ts'
import { trackChanges } from './track-changes.ts'

/** @param admin whose changes have no author yet @param onCluster is used only if the store is a cluster */
export function createAdminCalls(admin: AdminStore, onCluster: ApiOnCluster): ServeAdmin {
  return async (route, { request, url, address, params, id: requestId }, services) => {
    const { tokens } = services
    const scopes = scopesOf(route, params)
    const admit = () => tokens.check(bearerOf(request), scopes, address)
    await admit()
    const input = await readInput(route, request, url)
    // A caller can send its body slowly, until long after its token was revoked.
    const token = await admit()
    const change: ChangeContext = {
      actor: { kind: 'token', id: token.id, name: token.name },
      ...(await reasonOf(request, input.body)),
      requestId,
      tokenDigest: token.digest,
    }
    const store = trackChanges(withActor(admin, change))
    const given = route.isCreation ? request.headers.get('idempotency-key') : null
    const { claim, release, isSafe } = createClaim(given, store, {
      ...{ tokenId: token.id, requestId, onCluster },
    })
    try {
      return await route.run({ ...input, params, store, token, change, claim }, services)
    } catch (error) {
      // Reading can tidy an index, or run a script that only reads.
      const state = route.method === 'GET' ? 'none' : store.changeState()
      // Refused by the input or by what is stored, so nothing was created.
      if (error instanceof AdminError ? error.kind !== 'store' : error instanceof ApiError) await release()
      if (!(error instanceof AdminError)) throw error
      if (error.kind === 'ended') tokens.forget(token.digest)
      throw adminError(error, state, isSafe())
    }
  }
}

/** The reason of a change: a member of the body, else the header `Sluice-Reason`. @throws ApiError */
async function reasonOf({ headers }: Request, body: unknown): Promise<{ reason?: string }> {
  const { reason } = (body ?? {}) as { reason?: string }
  const header = headers.get('sluice-reason')
  const text = reason ?? (header && utf8Of(header))
  if (text === null) return {}
  const pointer = reason === undefined ? 'Sluice-Reason' : '/reason'
  return { reason: await parsed(pointer, () => parseShortText(text, 'reason')) }
}

/** On Node, a header has a character for each byte. On Workers, it is decoded. */
function utf8Of(header: string): string {
  try {
    return decodeURIComponent(escape(header))
  } catch {
    return header
  }
}
