/** How the benchmark measures. */

/** How often the whole measurement runs. */
export const RUNS = 5

/** Sentences for bench/results.md. */
export const METHOD = [
  'Six limits: 10 a second, 120 a minute and 240 an hour, for the consumer and again for the client address. Like is compared with like: six ' +
    'sliding-window rules with six slidingWindow calls of @upstash/ratelimit, and six fixed-window rules with six fixedWindow calls. A ' +
    'decision of Sluice also checks an API key, and is all or nothing; the calls do neither.',
  'Sluice and @upstash/ratelimit both use @upstash/redis, with the same REST bridge and the same redis-server. Sluice has switched off its retries and ' +
    'pipelines. "In turn": one call after the other. "At once": Promise.all. The client then sends all calls as one pipelined HTTP request.',
  '"Allowed": the limits are 1,000 times as large and all admit the request. "Refused": every limit is 1, and an earlier request in the same ' +
    'second has used it up. Both sides can remember refusals, which saves calls to Redis. Unless a row says otherwise, that is off when ' +
    'refusals are measured. The figures with it are under "Hot callers".',
  'Commands and server time are from INFO commandstats. Server time is the time of EVALSHA, including the commands that the script calls. ' +
    '"Redis idle in between": one decision at a time through the bridge. "Redis busy": the commands of 64 decisions (4 to 128 in some tables) ' +
    'are recorded, and then sent to Redis repeatedly, directly and without waiting for replies.',
  'The client, redis-server, each Worker, and the bridge together with the demo origin are separate processes on one machine. 20 ms away: a ' +
    'TCP proxy delays each chunk by 10 ms in each direction. Connections are opened before the measurement.',
  `The whole measurement runs ${RUNS} times, each time with new processes: client, bridge, redis-server and Workers. In a run, every contender is ` +
    'measured in one to three rounds after a warm-up; in every other round, and at the start of every other run, the order is reversed. A figure is ' +
    'the median of the runs, with the lowest and the highest run in brackets; the value of a run is the median of its rounds. A ratio is computed ' +
    'within each round, so its median can differ from the ratio of the two medians beside it. A p99 is over the samples of a run. Sections that only ' +
    'count (commands, bytes, trips) run once, and counts have no range unless the runs differ.',
  'Through workerd, PING is a Worker that sends one PING with the same client, and then proxies the request to the same origin with the same ' +
    'code. The times are of whole requests, including the origin. The six limits are those of the shipped config (gcra and fixed-window).',
  'CPU of workerd: user and system time of the whole process, from /proc. In each round, a separate process sends requests on 16 ' +
    'connections. Every Worker is bundled and minified as for a deployment, and has the flags of wrangler.toml. The bare proxy proxies each ' +
    'request with the same code, and sends nothing to a store.',
]
