package main

// bufferBugs are bugs of the packet buffer, and of the connections that handlers with servers' memory
// share.
var bufferBugs = []planted{
	{
		"packetbuffer: one READ is in flight", "swordbox/packetbuffer/machine.go",
		"window := l.Depth * len(l.Servers)",
		"window := min(1, l.Depth)",
		"topo/scenario TestBufferKeepsEightyThousandFrames",
	},
	{
		"buffer: an entry of another frame is taken for the right one", "swordbox/framering/ring.go",
		"return h.tag == r.tag && h.place == uint32(at) && h.number-r.expected < r.Remote()",
		"return h.tag == r.tag",
		"sim buffer",
	},
	{
		"buffer: a new frame overtakes those in the ring", "swordbox/packetbuffer/queue.go",
		"case q.empty() && q.tail.n == 0 && q.room(&f):\n\t\tq.enqueue(c, f)\n\t\treturn",
		"case q.room(&f):\n\t\tq.enqueue(c, f)\n\t\treturn",
		"sim buffer: comes behind",
	},
	{
		"buffer: frames that did not come back before another one are forgotten", "swordbox/framering/ring.go",
		"\tlost = number - r.expected\n",
		"\tlost = 0\n",
		"sim buffer: says where",
	},
	{
		"buffer: frames that did not come back at the end are forgotten", "swordbox/framering/ring.go",
		"\tlost = r.Remote()\n",
		"",
		"sim buffer: says where",
	},
	{
		"buffer: a part of a frame is taken for the next one", "swordbox/framering/ring.go",
		"int(h.part) != p.next || h.number",
		"h.number",
		"swordbox/framering TestPartsOfAFrame",
	},
	{
		"buffer: the frames in a ring that is replaced are forgotten", "swordbox/packetbuffer/machine.go",
		"\tq.stats.Lost += uint64(q.ring.Remote())\n",
		"",
		"sim buffer --change rules: says where",
	},
	{
		"buffer: the queue of the new mode does not wait for the former one", "swordbox/packetbuffer/queue.go",
		"q.local.n == 0 && q.place.Oldest() && (q.free",
		"q.local.n == 0 && (q.free",
		"sim buffer --change modes: comes behind",
	},
	{
		"buffer: the queue of the new mode writes over the former ring", "swordbox/packetbuffer/queue.go",
		"\tif !q.place.Oldest() {\n\t\treturn false\n\t}\n",
		"",
		"swordbox/packetbuffer TestNewQueueWaitsForTheFormerRing",
	},
	{
		"buffer: the queue of the former mode takes new frames", "swordbox/packetbuffer/machine.go",
		"if q == nil || m.busy || !q.place.Newest() {",
		"if q == nil || m.busy {",
		"swordbox/packetbuffer TestNewQueueWaitsForTheFormerRing",
	},
	{
		"buffer: a former queue stays although it is empty", "swordbox/packetbuffer/machine.go",
		"\tq.load(c)\n\tm.busy = false\n\tm.settle()\n",
		"\tq.load(c)\n\tm.busy = false\n",
		"swordbox/packetbuffer TestFormerQueueGoesWithItsLastFrame",
	},
	{
		"buffer: a former queue forgets the rate of its port", "swordbox/packetbuffer/queue.go",
		"return q.gone && q.place.Newest()",
		"return q.gone",
		"swordbox/packetbuffer TestFormerQueueKeepsTheRate",
	},
	{
		"buffer: both modes have the same connections", "swordbox/extmem/links.go",
		"if mode == rules.Published {",
		"if mode == rules.Published && number < 0 {",
		"topo/scenario TestBufferChangesItsMode",
	},
	{
		"buffer: frames leave in the wrong order when the program is replaced", "swordbox/packetbuffer/queue.go",
		"func (q *queue) flush(c *pipeline.Ctx) {\n\tif !q.place.Oldest() {",
		"func (q *queue) flush(c *pipeline.Ctx) {\n\tif c == nil {",
		"swordbox/packetbuffer TestFlushBeginsWithTheFormerQueue",
	},
	{
		"buffer: a frame to a port that is down counts as sent", "swordbox/packetbuffer/queue.go",
		"\t\tq.stats.Down++\n",
		"\t\tq.stats.Sent++\n",
		"swordbox/packetbuffer TestPortIsDown",
	},
	{
		"buffer: the tail stays when the ring before it was replaced", "swordbox/packetbuffer/queue.go",
		"case q.stuck() || q.more || q.local.n > 0 && q.unlimited():",
		"case q.more || q.local.n > 0 && q.unlimited():",
		"swordbox/packetbuffer TestTailLeavesAfterAChangeOfTheRing",
	},
	{
		"buffer: more entries are stored than a step can send", "swordbox/framering/ring.go",
		"return min(n, c.EmitsLeft())",
		"return n",
		"swordbox/packetbuffer TestStoresNoMoreThanAStepCanSend",
	},
	{
		"buffer: long frames take any number of bytes", "swordbox/packetbuffer/fifo.go",
		"q.n < high && q.bytes+size <= high*frameBytes",
		"q.n < high",
		"swordbox/packetbuffer TestWaitingBytesAreBounded",
	},
	{
		"buffer: a changed ring is used although it does not fit", "swordbox/packetbuffer/machine.go",
		"\tm.links.Recheck()\n",
		"",
		"swordbox/packetbuffer TestRingThatDoesNotFit",
	},
	{
		"buffer: a refused connection is not offered again", "swordbox/apps/swordbox/own.go",
		"if i.Shared != nil && !o.offer(c, *i.Shared) {",
		"if i.Shared != nil && c == nil {",
		"topo/scenario TestRefusedConnectionIsOfferedAgain",
	},
	{
		"buffer: a connection to the wrong service is kept", "swordbox/apps/swordbox/own.go",
		"\t\t\to.dialer.Renew(c, i.Key)\n",
		"",
		"topo/scenario TestRefusedConnectionIsOfferedAgain",
	},
}
