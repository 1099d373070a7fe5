package main

// shermanBugs are bugs of the tree.
var shermanBugs = []planted{
	{
		"sherman/layout: the epochs of records are not compared", "sherman/layout/hardened.go",
		"if mark != 0 && age(p.Epoch, mark>>6) > oldest {",
		"if mark == 1 && age(p.Epoch, mark>>6) > oldest {",
		"sherman/layout TestARecordYoungerThanTheHeaderIsTorn",
	},
	{
		"sherman: a lock is released before the page is written", "sherman/locks.go",
		"c.list = append(c.list, &c.ops[i])",
		"c.list = append(c.list, &c.ops[n-1-i])",
		"sim sherman --mix locks",
	},
	{
		"sherman: a lock is taken over without the fence", "sherman/locks.go",
		"err := c.fence(h.key.Server, from.Owner(), deadline)",
		"err := error(nil)",
		"sherman TestWithoutTheFenceALateWriteLands",
	},
	{
		"sherman: a split names the new page before it is written", "sherman/split.go",
		"\tif err := c.writeFresh(to.At, c.sibBuf, deadline); err != nil {\n\t\treturn errors.Join(err, ignoreRelease(c.release(h, deadline)))\n\t}\n\tlevel := p.Level + 1\n",
		"\tlevel := p.Level + 1\n\tdefer func() { _ = c.writeFresh(to.At, c.sibBuf, deadline) }()\n",
		"sim sherman --mix keys",
	},
	{
		"sherman: a leaf from the cache is trusted without its range", "sherman/search.go",
		"\t\tcase p.Covers(key):\n\t\t\tif step > 0 {",
		"\t\tcase p.Covers(key) || step == 0:\n\t\t\tif step > 0 {",
		"sherman TestDamagedSiblings",
	},
	{
		"sherman: a record is written to a page that does not cover its key", "sherman/write.go",
		"\tcase !p.Covers(key):\n\t\tif next = p.Sibling; next == 0 {",
		"\tcase key == 0 && !p.Covers(key):\n\t\tif next = p.Sibling; next == 0 {",
		"sherman TestDamagedSiblings",
	},
	{
		"sherman: an old connection is not ended", "sherman/link.go",
		"memservice.Claim{Owner: l.asked, Replaces: l.mem.Conn}",
		"memservice.Claim{Owner: l.asked}",
		"sim sherman --mix late",
	},
	{
		"sherman: a WRITE without answer is not made again", "sherman/resolve.go",
		"\tif layout.Tag(word) != h.tag {\n\t\tif !*released {",
		"\tif word+1 > 0 {\n\t\tif !*released {",
		"sim sherman",
	},
	{
		"sherman/layout: a list of pages has no number of its changes", "sherman/layout/merge.go",
		"return h>>32<<32 + 1<<32 | FreeHead(a.Offset()/MinPage)",
		"return h>>32<<32 | FreeHead(a.Offset()/MinPage)",
		"sherman/layout TestEveryChangeOfAListShows",
	},
	{
		"sherman: a separator names a page that has left the tree", "sherman/split.go",
		"if live, err := c.isLive(s, deadline); err != nil || !live {\n\t\treturn 0, give(err)",
		"if live, err := c.isLive(s, deadline); err != nil && !live {\n\t\treturn 0, give(err)",
		"sherman TestNoSeparatorNamesAPageThatLeft",
	},
	{
		"sherman: an inherited lock word in doubt is not read", "sherman/locks.go",
		"if err == nil && left.Doubt == 0 {",
		"if err == nil {",
		"sherman TestAnInheritedWordInDoubtIsRead",
	},
	{
		"sherman: a lock outlives the incarnation of its server", "sherman/locks.go",
		" && l.mem.Boot == boot\n",
		"\n",
		"sherman TestALockOfAnEarlierIncarnationIsNone",
	},
	{
		"sherman: a page is free while its left neighbour names it", "sherman/merge.go",
		"\tif err := c.bypass(left, true, depth, deadline); err != nil {\n\t\treturn err\n\t}\n",
		"",
		"sherman TestDeletesGiveRoomBack",
	},
	{
		"sherman: the records of a closed leaf are not found", "sherman/search.go",
		"\t\t\tif next == 0 || err != nil {\n\t\t\t\treturn a, err\n",
		"\t\t\tif next == 0 || err != nil {\n\t\t\t\tclear(c.page.Bytes[layout.Line:])\n\t\t\t\treturn a, err\n",
		"sherman TestDeathInAMerge",
	},
	{
		"sherman/layout: the range of a closed leaf is taken over without its records", "sherman/layout/merge.go",
		"\t} else if ranges, ok = adoptRecords(p, left, ranges); !ok {",
		"\t} else if _, ok = adoptRecords(p, left, nil); !ok {",
		"sherman TestDeathInAMerge",
	},
	{
		"sherman/layout: copies of an interrupted merge become records", "sherman/layout/merge.go",
		"if b, mark := p.hardenedRecord(i); mark != 0 && from.Value == nil &&",
		"if b, mark := p.hardenedRecord(i); mark == 1 && from.Value == nil &&",
		"sherman/layout TestAbsorbAgain",
	},
	{
		"sherman/layout: a header is written before the records that it covers", "sherman/layout/merge.go",
		"\treturn append(ranges, p.putHeader()), true\n",
		"\treturn append([]Range{p.putHeader()}, ranges...), true\n",
		"sherman/layout TestAbsorbIsSeenAsAWhole",
	},
	{
		"sherman/layout: an empty slot of a reused page has no epoch", "sherman/layout/page.go",
		"if s.Kind != Hardened || p.Epoch == 1 {",
		"if s.Kind != Hardened || p.Epoch > 0 {",
		"sherman/layout TestAReusedPageIsNotTakenForAnEmptyOne",
	},
	{
		"sherman: a leaf is closed although its sibling has no room", "sherman/layout/merge.go",
		"\t\tp.Count()+sib.Count() <= (p.Slots()+mergedShare-1)/mergedShare\n",
		"\t\tp.Count()+sib.Count() <= 2*p.Slots()\n",
		"sherman/layout TestMayMerge",
	},
	{
		"sherman: a full sibling is not split for a closed leaf", "sherman/merge.go",
		"\t\t\t\terr = c.makeRoom(left.Sibling, deadline)\n",
		"\t\t\t\terr = nil\n",
		"sherman TestTheSiblingOfASparseLeafIsFull",
	},
	{
		"sherman: a merge ends when another page on its way has left", "sherman/merge.go",
		"\t\tif err != nil && !errors.Is(err, errOwner) && gone(err) != nil {\n",
		"\t\tif err != nil && !errors.Is(err, errOwner) {\n",
		"sherman TestFillAndEmptyTenTimes",
	},
	{
		"sherman: no page is kept for splits that merges need", "sherman/space.go",
		"\t\t\tc.keepSlack(layout.Fresh{",
		"\t\t\tfalse && c.keepSlack(layout.Fresh{",
		"sherman TestTheSiblingOfASparseLeafAndTheTreeAreFull",
	},
	{
		"sherman: a closed page stays when its sibling has left", "sherman/merge.go",
		"\t\tcase errors.Is(err, errGone):\n",
		"\t\tcase errors.Is(err, errGone) && depth < 0:\n",
		"sherman TestAClosedPageWhoseSiblingHasLeft",
	},
	{
		"sherman: a scan trusts a leaf with keys below its separator", "sherman/scan.go",
		" || i > 0 && s.next < c.scans.seps[i-1] {",
		" {",
		"sherman TestScanReadsALeafDuringAMerge",
	},
}
