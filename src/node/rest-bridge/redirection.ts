/** The errors with which a node of a Redis Cluster refuses a command because the slot belongs to another node, or is moving to one. */
import { ErrorReply } from './redis-server.ts'

export type Redirection =
  /** MOVED: the slot belongs to another node. ASK: the slot is moving, and only this command goes to the other node. */
  | { kind: 'MOVED' | 'ASK'; slot: number; address: string }
  /** The slot is moving, and the keys of the command are at two nodes. Try again later. */
  | { kind: 'TRYAGAIN' }

/** `MOVED 3999 127.0.0.1:6381`. A node that does not know its own address leaves out the host. */
const ELSEWHERE = /^(MOVED|ASK) (\d+) (\S*:\d+)$/

export function redirectionOf(error: unknown): Redirection | undefined {
  if (!(error instanceof ErrorReply)) return undefined
  const [, kind, slot, address = ''] = ELSEWHERE.exec(error.message) ?? []
  if (kind) return { kind: kind as 'MOVED' | 'ASK', slot: Number(slot), address }
  return error.message.startsWith('TRYAGAIN') ? { kind: 'TRYAGAIN' } : undefined
}
