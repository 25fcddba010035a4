/** Limits the routes of the API. On Next.js 14 and 15, the file is `middleware.js` and the function `middleware`. */
import { NextResponse } from 'next/server'
import { guard } from 'sluicegate/guard'
import limits from './sluice.config.js'

export const proxy = guard(limits)(() => NextResponse.next())

export const config = { matcher: '/api/:path*' }
