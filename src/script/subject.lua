-- Identifies the caller by the records of its credential and its consumer. The plan is
-- that of the credential, else that of the consumer, else the default plan. The default
-- plan also replaces plans that the config does not have.
--
-- If no rule on requests can decide, `instead` is the reply, unless a rule on bad
-- credentials refuses. These decide first, so that after too many guesses a good
-- credential takes neither another reply nor another trip than a bad one.
--
--   ARGV[3]  the kind of the subject
--            ''         an anonymous caller, or a credential that was checked before
--            'key'      KEYS[1] is the record of the consumer, KEYS[2] that of the
--                       credential, which must exist
--            'pointer'  the same, but the keys have a '?' instead of the consumer, and
--                       KEYS[3] contains the consumer
--            'token'    already verified by its signature; KEYS[1] is the record of
--                       the consumer
--            'failed'   the credential is known to be bad
--   ARGV[4]  the plan if it is known without the store, because a token or an earlier
--            decision names it; with 'key' and 'pointer' the mode that the rules are bound
--            for, if only the record has the mode of the credential; else ''
if subject == '' then
  plan = ARGV[4] or ''
elseif subject == 'failed' then
  is_unknown = true
else
  settings = values[1]
  local own_plan
  if subject == 'token' then
    own_plan = ARGV[4] or ''
  elseif subject == 'key' or consumer then
    -- Most credentials name no plan: 'plan= created=…'.
    local record = values[2]
    own_plan = record and (sub(record, 1, 6) == 'plan= ' and '' or string.match(record, '^plan=(%S*)'))
    local mode = own_plan and ARGV[4] or ''
    if mode ~= '' then
      -- The caller has other identities in another mode, so nothing is spent.
      local own_mode = string.find(record, ' mode=test', 1, true) and 'test' or 'live'
      if own_mode ~= mode then
        instead = { -3, consumer and own_mode .. ' ' .. consumer or own_mode, now }
      end
    end
  end
  if own_plan then
    if settings then
      -- The fields before the overrides, of which there can be many.
      overrides_at = string.find(settings, 'override=', 1, true)
      local head = overrides_at and sub(settings, 1, overrides_at) or settings
      if string.find(head, 'blocked=', 1, true) then
        -- When the block ends; '': it has no end.
        local block_end = string.match(head, ' until=(%d+)') or ''
        if block_end == '' or block_end + 0 > now then
          instead = { -2, '', now, block_end }
        end
      end
      if own_plan == '' and sub(settings, 1, 6) ~= 'plan= ' then
        own_plan = string.match(settings, '^plan=(%S+)') or ''
      end
    end
    plan = own_plan
  else
    is_unknown = true
  end
end
