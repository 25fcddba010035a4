/**
 * Finds the first key of a command by the server's own description of its commands (COMMAND), so that new commands and modules need no
 * change here. The first key only decides which node gets the command first. That node checks all keys, and redirects the command if they
 * belong elsewhere.
 */
import type { Command, Reply } from './redis-server.ts'

type Word = string | Buffer
type Finder = (command: Command) => Word | undefined

/** Commands whose keys Redis before 7.0 only describes as movable. */
const SCRIPTS = new Set(['EVAL', 'EVALSHA'])

export class CommandKeys {
  /** By name. A subcommand is separated by a bar: `GET`, `OBJECT|ENCODING`. */
  readonly #finders = new Map<string, Finder>()

  /** @param descriptions the reply to COMMAND. With an empty reply, commands are redirected more often */
  constructor(descriptions: Reply) {
    this.#addFinders(descriptions)
  }

  /** The first key. Undefined if the command has no key, or if its position is not known. */
  firstKeyOf(command: Command): Word | undefined {
    const name = String(command[0]).toUpperCase()
    const find = this.#finders.get(`${name}|${String(command[1]).toUpperCase()}`) ?? this.#finders.get(name)
    return find?.(command)
  }

  #addFinders(descriptions: Reply): void {
    if (!Array.isArray(descriptions)) return
    for (const description of descriptions) {
      if (!Array.isArray(description)) continue
      const [word, , , first, , , , , specs, subcommands] = description
      const name = String(word).toUpperCase()
      this.#finders.set(name, finderOf(name, Number(first), specs))
      if (subcommands !== undefined) this.#addFinders(subcommands)
    }
  }
}

function finderOf(name: string, first: number, specs: Reply | undefined): Finder {
  if (Array.isArray(specs) && specs.length > 0) {
    const finders = specs.map(spec => finderOfSpec(mapOf(spec)))
    return command => {
      for (const find of finders) {
        const key = find(command)
        if (key !== undefined) return key
      }
      return undefined
    }
  }
  if (first > 0) return command => command[first]
  if (SCRIPTS.has(name)) return command => keyAfterCount(command, 2, 1)
  return () => undefined
}

/** A key specification (Redis 7.0): where the keys begin, and how they are found from there. */
function finderOfSpec(spec: Map<string, Reply>): Finder {
  const begin = mapOf(spec.get('begin_search'))
  const find = mapOf(spec.get('find_keys'))
  const count = mapOf(find.get('spec'))
  return command => {
    const start = startOf(String(begin.get('type')), mapOf(begin.get('spec')), command)
    if (start === undefined) return undefined
    switch (String(find.get('type'))) {
      case 'range':
        return command[start]
      case 'keynum':
        return keyAfterCount(command, start + Number(count.get('keynumidx')), Number(count.get('firstkey')))
      default:
        return undefined
    }
  }
}

function startOf(type: string, spec: Map<string, Reply>, command: Command): number | undefined {
  if (type === 'index') return Number(spec.get('index'))
  const from = Number(spec.get('startfrom'))
  // A search from the end is not implemented. Only MIGRATE needs it, which the bridge refuses.
  if (type !== 'keyword' || !(from > 0)) return undefined
  const keyword = String(spec.get('keyword')).toUpperCase()
  const at = command.findIndex((word, i) => i >= from && String(word).toUpperCase() === keyword)
  return at < 0 ? undefined : at + 1
}

/** `2 key key …`: the number of keys, and the keys at a distance from it. */
function keyAfterCount(command: Command, countAt: number, distance: number): Word | undefined {
  return Number(command[countAt]) > 0 ? command[countAt + distance] : undefined
}

/** RESP2 has no maps: names and values take turns. */
function mapOf(reply: Reply | undefined): Map<string, Reply> {
  const map = new Map<string, Reply>()
  if (!Array.isArray(reply)) return map
  for (let i = 0; i + 1 < reply.length; i += 2) map.set(String(reply[i]), reply[i + 1]!)
  return map
}
