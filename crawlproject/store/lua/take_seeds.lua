-- Moves seeds from the list into this worker's hand.
--
-- A: worker; count (at most).
-- Reply: all seeds in hand, the one taken first at the head.

local in_hand = K.in_hand_of .. A.worker
for _ = 1, A.count do
  if not redis.call('RPOPLPUSH', K.seeds, in_hand) then break end
end
local seeds = redis.call('LRANGE', in_hand, 0, -1)
local reply = {}
for index = #seeds, 1, -1 do reply[#reply + 1] = seeds[index] end
return reply
