/** What a node of a Redis Cluster answers when it did not run a command because the slot is, or will be, elsewhere. */
import { ErrorReply } from './redis-server.ts'

export type Redirection =
  /** The slot belongs to another node from now on, or is asked for there this once while it moves. */
  | { kind: 'MOVED' | 'ASK'; slot: number; address: string }
  /** While it moves, its keys are in two places: later. */
  | { kind: 'TRYAGAIN' }

/** `MOVED 3999 127.0.0.1:6381`; a node that does not know its own address leaves the host out, and so do we. */
const ELSEWHERE = /^(MOVED|ASK) (\d+) (\S*:\d+)$/

export function redirectionOf(error: unknown): Redirection | undefined {
  if (!(error instanceof ErrorReply)) return undefined
  const [, kind, slot, address = ''] = ELSEWHERE.exec(error.message) ?? []
  if (kind) return { kind: kind as 'MOVED' | 'ASK', slot: Number(slot), address }
  return error.message.startsWith('TRYAGAIN') ? { kind: 'TRYAGAIN' } : undefined
}
