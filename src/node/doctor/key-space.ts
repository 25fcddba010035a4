/**
 * The keys of one examination: an environment of its own with a random name. So no key of a user can be meant, and each key that a call
 * names is known, can be removed, and can be looked for afterwards.
 */
import { randomBase62 } from '../../credentials/api-key.ts'
import { inEnvironment } from '../../store/keys.ts'
import type { RestAnswer, RestCommand } from '../../store/rest.ts'
import type { Store } from '../../store/store.ts'
import { type Finding, fault, ok } from './checks.ts'

/** How long keys of checks live if they cannot be removed (s). The states of rules live as long as their periods. */
export const KEY_SECONDS = 900

/** Sends commands in one trip, at least one. Errors of single commands are answers. @throws whatever keeps all of them from being answered */
export type Send = (
  commands: readonly RestCommand[],
  isTransaction?: boolean,
) => Promise<readonly RestAnswer[]>

const AT_ONCE = 500

export class KeySpace {
  readonly environment = `doctor${randomBase62(10).toLowerCase()}`
  readonly prefix = `sluice:${this.environment}:`
  readonly #used = new Set<string>()

  /** A key of src/store/keys.ts, in this space. It is removed at the end. */
  at(key: string): string {
    const own = inEnvironment(key, this.environment)
    if (!own.startsWith(this.prefix)) throw new Error('A key of the doctor is outside of its key space.')
    this.#used.add(own)
    return own
  }

  /** Of a check. All of them are in one slot of a cluster. */
  key = (name: string): string => this.at(`sluice:{doctor}:${name}`)

  /** A store in this environment. The keys of its calls are removed at the end. */
  recorded(store: Store): Store {
    return {
      ...store,
      run: (calls, listener) => {
        for (const call of calls) for (const key of 'key' in call ? [call.key] : call.keys) this.at(key)
        return store.run(calls, listener)
      },
    }
  }

  /** Removes all keys, and proves it. Never rejects. */
  async remove(send: Send): Promise<Finding> {
    const keys = [...this.#used]
    const onEach = async (name: string) => {
      const answers = []
      for (let from = 0; from < keys.length; from += AT_ONCE)
        answers.push(...(await send(keys.slice(from, from + AT_ONCE).map(key => [name, key]))))
      return answers
    }
    for (let attempt = 0; attempt < 3; attempt++) {
      const left = await onEach('DEL').then(
        () => onEach('EXISTS'),
        () => undefined,
      )
      if (left?.every(({ result }) => result === 0))
        return ok`The ${keys.length} keys of this examination are removed: none is left.`
    }
    return fault`The keys of this examination could not be removed. They begin with ${this.prefix} → Remove them: redis-cli --scan --pattern '${this.prefix}*' | xargs redis-cli DEL. Otherwise they expire, at the latest after the longest period of your rules.`
  }
}
