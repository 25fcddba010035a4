/** Finds the name that a misspelled one probably stands for. */

/** ` Did you mean 'plans'?`, to append to a sentence. Empty if no name is similar, and for a value that is not text. */
export function didYouMean(word: unknown, known: readonly string[]): string {
  const near = typeof word === 'string' ? nearest(word, known) : undefined
  return near === undefined ? '' : ` Did you mean '${near}'?`
}

/** The known name with the fewest changes. @returns undefined if more than a third of the word would change */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const most = Math.max(1, Math.floor(word.length / 3))
  let best: { name: string; distance: number } | undefined
  for (const name of known) {
    if (Math.abs(name.length - word.length) > most) continue
    const distance = distanceBetween(plain(word), plain(name))
    // A change of every letter is not a similarity: this is about names of one or two letters.
    if (distance > most || distance >= name.length) continue
    if (!best || distance < best.distance) best = { name, distance }
  }
  return best?.name
}

/** The name without the differences that readers overlook: case, and the separator between words. */
const plain = (name: string) => name.toLowerCase().replaceAll(/[-_ ]/g, '')

/** The number of letters to add, remove or replace, and of neighbors to swap (optimal string alignment distance). */
function distanceBetween(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      const isSwapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row[j] = Math.min(
        last[j]! + 1,
        row[j - 1]! + 1,
        last[j - 1]! + (isSame ? 0 : 1),
        isSwapped ? beforeLast[j - 2]! + 1 : Number.POSITIVE_INFINITY,
      )
    }
    beforeLast = last
    last = row
  }
  return last[b.length]!
}
