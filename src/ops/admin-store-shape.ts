/** The store for administration, and what it needs. */
import type { Config, LimitRule } from '../config/compile.ts'
import type { KeySigner } from '../credentials/key-signature.ts'
import type { RuleSet } from '../script/rule-set-shape.ts'
import type { AdminConnection, Command } from '../store/admin-connection.ts'
import type { Advice } from './advice.ts'
import type { AuditPage, Position, Range } from './audit-shape.ts'
import type { Change, Entry } from './change.ts'
import type { RotatedToken, Rotation } from './token-shape.ts'

/** The environment, and what its keys look like. */
export interface KeySpace {
  environment?: string | undefined
  /** Prefix of API keys (`credentials.apiKeys.prefix`). Default: `slk`. */
  keyPrefix?: string
  /** Signs new API keys. Absent: they are not signed. */
  keySigner?: KeySigner | undefined
}

/** The author of the changes of a store. */
export interface Author extends Change {
  /** ms since the epoch. Default: the clock of Redis. */
  now?: () => number
}

export interface AdminStore extends AdminConnection {
  environment: string | undefined
  keyPrefix: string
  /** The first characters of every API key of this environment. */
  keyStart: string
  /** Signs new API keys. */
  keySigner: KeySigner | undefined
  /** The scripts of the rules, for peeking at them. */
  ruleSets: RuleSets
  onCluster: OnCluster
  /** Adds the environment to a key of src/store/keys.ts. */
  at(key: string): string
  /** The author of its changes, each of which then leaves an entry in the audit trail. */
  author?: Author
  /** How long entries of the audit trail are kept. */
  auditKeepMs: number
  /** Absent: the errors are for callers of the API. */
  advice?: Advice & {
    /** Names for a message about a consumer that the store does not have. If it has the consumer, it is one of them. */
    namesNear(store: AdminStore, consumer: string): Promise<string[]>
    /** Whether the index of consumers does not have this one. */
    isNew(store: AdminStore, consumer: string): Promise<boolean>
  }
}

/** Commands that run together. */
export interface Write {
  /** All keys of the commands, with the environment. On a cluster, they are in one slot. */
  keys: readonly string[]
  /** Commands of Redis, and `DELETE-IF key text`, which deletes a key that has this text. */
  commands: readonly Command[]
  /** Some of the keys, and the texts that they must have, or ANY or NONE of write.ts. If one has not, nothing is written. */
  onlyIf?: readonly (readonly [key: string, text: string])[]
  /** Of a creation: `write` throws if another one has it. */
  claim?: HeldClaim | undefined
  /** What the write adds to an index. */
  listed?: Listed | undefined
  /** Absent: a detail of another change, which leaves no entry. */
  entry?: Entry | undefined
}

/** A member of an index. It stays there as long as any of its records exists. All keys have the environment. */
export interface Listed {
  index: string
  member: string
  records: readonly string[]
}

/** Lets a creation be written only while it has its claim, and ends the claim in the same run. */
export interface HeldClaim {
  key: string
  /** While the creation is not written. */
  text: string
  /** From then on. */
  done: string
}

/** Called with the id of what is new before anything is written. If it throws, nothing is. */
export type BeforeCreation = (id: string) => Promise<HeldClaim | undefined>

/** Finds the rule sets of a config: with scripts that are compiled at run time (src/script/compiled.ts), or that were built before. */
export interface RuleSets {
  ofGateway(config: Pick<Config, 'rules' | 'plans'>): RuleSet
  ofLimit(rules: readonly LimitRule[]): RuleSet
}

/** What takes more than one script on a cluster. A Worker only has it with `store.cluster`. */
export interface OnCluster {
  /** Lists the stream of an entry before it is written, so that the entry is found even if this process ends. */
  listStream(store: AdminStore, stream: string): Promise<void>
  readAudit(store: AdminStore, range: Range, from: Position | undefined): Promise<AuditPage>
  /** Deletes the keys that have this text. */
  deleteEachIf(store: AdminStore, keys: readonly string[], text: string): Promise<void>
  /** Makes a write whose index is in another slot. @param write replies whether it was made */
  writeListed(store: AdminStore, listed: Listed, write: () => Promise<boolean>): Promise<boolean>
  /** As unlistIfGone of sorted-index.ts. */
  unlistIfGone(
    store: AdminStore,
    index: string,
    members: readonly string[],
    records: readonly string[],
  ): Promise<void>
  rotateToken(store: AdminStore, rotation: Rotation, claim: HeldClaim | undefined): Promise<RotatedToken>
  /** After the pointer of an imported key was replaced. @throws AdminError `conflict` if the key belongs to its first owner after all */
  confirmClaim(store: AdminStore, key: { digest: string; consumer: string; owner: string }): Promise<void>
  /** After the record of an imported key was written. @throws AdminError `conflict` if another consumer has got the key */
  confirmImport(store: AdminStore, key: { digest: string; consumer: string; id: string }): Promise<void>
}
