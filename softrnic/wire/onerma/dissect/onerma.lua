-- A dissector of 1RMA messages for Wireshark and tshark: tshark -X lua_script:onerma.lua -r FILE
-- The messages are described in docs/papers/onerma.md. Bodies are encrypted, and shown as bytes.

local onerma = Proto("onerma", "1RMA")

local kinds = { [1] = "request", [2] = "pull", [3] = "data", [4] = "done", [5] = "nack", [6] = "authfail" }
local operations = { [1] = "READ", [2] = "WRITE", [3] = "REKEY" }
local versionNow, headerLen, tagLen, unit, maxOp = 1, 44, 16, 64, 4096

local f = onerma.fields
f.version = ProtoField.uint8("onerma.version", "Version")
f.kind = ProtoField.uint8("onerma.kind", "Kind", base.DEC, kinds)
f.op = ProtoField.uint8("onerma.op", "Operation", base.DEC, operations)
f.class = ProtoField.uint8("onerma.class", "Class")
f.slot = ProtoField.uint16("onerma.slot", "Slot of the initiator")
f.at = ProtoField.uint16("onerma.at", "Offset of the body in the operation")
f.generation = ProtoField.uint32("onerma.generation", "Generation of the slot")
f.region = ProtoField.uint32("onerma.region", "Region")
f.offset = ProtoField.uint64("onerma.offset", "Offset in the region")
f.length = ProtoField.uint32("onerma.length", "Length of the operation")
f.pid = ProtoField.uint32("onerma.pid", "PID of the initiator")
f.counter = ProtoField.uint64("onerma.counter", "Counter of the sender", base.HEX)
f.ticket = ProtoField.uint32("onerma.ticket", "Ticket of the target", base.HEX)
f.body = ProtoField.bytes("onerma.body", "Encrypted body")
f.tag = ProtoField.bytes("onerma.tag", "Tag")

local malformed = ProtoExpert.new("onerma.malformed", "malformed message", expert.group.MALFORMED, expert.severity.ERROR)
onerma.experts = { malformed }

-- badBody reports whether a message of this kind cannot have a body of n bytes.
local function badBody(kind, at, length, n)
	if kind == 2 then return n ~= 4 end
	if kind ~= 3 then return n ~= 0 end
	local last = at + n
	return at % unit ~= 0 or n == 0 or last > length or (last % unit ~= 0 and last ~= length)
end

-- wrong returns what is wrong with a message with a body of n bytes, or nil.
local function wrong(version, kind, op, class, at, length, n)
	if version ~= versionNow then return "version " .. version end
	if kinds[kind] == nil then return "kind " .. kind end
	if operations[op] == nil or (op == 1 and (kind == 2 or kind == 4)) then return kinds[kind] .. " of operation " .. op end
	if class > 1 then return "class " .. class end
	if length < 1 or length > maxOp or (op == 3 and length ~= 16) then return "length " .. length end
	if kind ~= 3 and at ~= 0 then return "offset " .. at .. " in a message without data" end
	if badBody(kind, at, length, n) then return "a body of " .. n .. " bytes" end
	return nil
end

function onerma.dissector(buffer, pinfo, tree)
	local all = buffer:len()
	if all < headerLen + tagLen then return 0 end
	pinfo.cols.protocol = "1RMA"
	local t = tree:add(onerma, buffer(0, all))
	local n = all - headerLen - tagLen
	t:add(f.version, buffer(0, 1))
	t:add(f.kind, buffer(1, 1))
	t:add(f.op, buffer(2, 1))
	t:add(f.class, buffer(3, 1))
	t:add(f.slot, buffer(4, 2))
	t:add(f.at, buffer(6, 2))
	t:add(f.generation, buffer(8, 4))
	t:add(f.region, buffer(12, 4))
	t:add(f.offset, buffer(16, 8))
	t:add(f.length, buffer(24, 4))
	t:add(f.pid, buffer(28, 4))
	t:add(f.counter, buffer(32, 8))
	t:add(f.ticket, buffer(40, 4))
	if n > 0 then t:add(f.body, buffer(headerLen, n)) end
	t:add(f.tag, buffer(headerLen + n, tagLen))
	local kind, op, length = buffer(1, 1):uint(), buffer(2, 1):uint(), buffer(24, 4):uint()
	local why = wrong(buffer(0, 1):uint(), kind, op, buffer(3, 1):uint(), buffer(6, 2):uint(), length, n)
	if why ~= nil then
		t:add_proto_expert_info(malformed, why)
		pinfo.cols.info = "malformed: " .. why
		return all
	end
	pinfo.cols.info = string.format("%s %s slot=%d/%d region=%d offset=%s length=%d", operations[op], kinds[kind],
		buffer(4, 2):uint(), buffer(8, 4):uint(), buffer(12, 4):uint(), tostring(buffer(16, 8):uint64()), length)
	return all
end

DissectorTable.get("udp.port"):add(4792, onerma)
