/** The schema of `cors`, of the gateway and of its API. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { duration, headerName, settings } from './values.ts'

export interface CorsInput extends v.InferInput<typeof cors> {}

const WEB_ORIGIN = "is not an origin of a web page. Write it like 'https://app.example.com', without a path."

/** An origin as browsers send it: scheme, host and port, without a path. */
const webOrigin = v.pipe(
  v.string(WEB_ORIGIN),
  v.check(input => URL.canParse(input) && new URL(input).origin === input, WEB_ORIGIN),
)

export const cors = settings(
  {
    /** Origins that may read replies: `'*'` or `['https://app.example.com']` */
    origins: v.union(
      [
        v.literal('*'),
        v.pipe(
          v.array(webOrigin),
          v.minLength(1, 'is empty: no web page could read the replies. Name an origin.'),
        ),
      ],
      "is not a list of origins. Write '*' or ['https://app.example.com'].",
    ),
    /** Request headers that scripts may send (default: those that the preflight asks for). */
    headers: v.optional(
      v.array(headerName, "is not a list of header names. Write it like ['content-type']."),
    ),
    /** How long a browser may cache the answer to a preflight (default `'10m'`). */
    maxAge: v.optional(duration(1e6, 86400e6, "from '1s' to '1d'")),
  },
  "is not an object. Write it like { origins: '*' }.",
)
