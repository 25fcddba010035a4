/** What a command closes when it has ended, such as connections: they would keep the process alive. */
const closers: (() => Promise<void>)[] = []

export const atEnd = (close: () => Promise<void>): void => void closers.push(close)

/** Commands that run in one process after each other each close their own. */
export async function closeAll(): Promise<void> {
  await Promise.all(closers.splice(0).map(close => close()))
}
