/** Lets a task continue after the reply. The platform keeps the task alive as long as it can. If the task fails, the error is ignored. */
export type Background = (task: Promise<unknown>) => void

/** For platforms that cannot keep a task alive, and for Node, whose process keeps running anyway. */
export const detached: Background = task => void task.catch(() => {})
