/** What stands in a Worker for a part that its config did not use when it was built (src/built/). */

/** @returns a function that throws */
export function notBuilt(part: string): () => never {
  return () => {
    throw new Error(
      `The Worker was built without '${part}', for another config. Build it with npx sluice build.`,
    )
  }
}
