package experiment

// threads are the numbers of clients of the SwordBox paper's measurements of Clover.
var threads = []int{7, 14, 28, 56, 112, 168, 224, 280, 336, 392}

// cloverOps are operations a second of Clover at these numbers of clients, by percentage of writes
// and by what the switch steers: figures 11 and 5 of the SwordBox paper as the authors' plot data
// have them (1,000 keys, Zipf 1.0, nodes of 128 bytes).
var cloverOps = map[float64]map[string][]float64{
	0: {
		"":     {1829774, 3577880, 7008356, 13684405, 25656091, 34720826, 39142324, 39713784, 39970952, 40600024},
		"both": {1832205, 3567680, 7009575, 13703432, 25692824, 34795712, 39152679, 39790996, 39960749, 40455924},
	},
	5: {
		"":      {1487724, 2655252, 4818364, 7666020, 12365564, 13979169, 13716786, 13427863, 12837368, 12382960},
		"write": {1500840, 2680607, 4929508, 7935485, 12774234, 14548308, 14439633, 14124372, 13402903, 13402903},
		"both":  {1748703, 3377649, 6438944, 12586564, 21354096, 28715113, 34991652, 34930195, 35529061, 35252996},
	},
	50: {
		"":      {554788, 877068, 1120964, 1312144, 1509604, 1450528, 1226730, 870612, 1180566, 1257288},
		"write": {815460, 1331156, 1858488, 2343504, 2639795, 2386740, 2098574, 1471908, 1830812, 1602349},
		"both":  {1194607, 2264604, 4147258, 8024861, 13868472, 19604656, 24528677, 28124268, 28348060, 28201180},
	},
	100: {
		"":      {357708, 516197, 617516, 686380, 735140, 677488, 538924, 367619, 548668, 553904},
		"write": {866916, 1639656, 3114720, 5418308, 9386624, 12991886, 14967071, 17022698, 17165892, 17432716},
		"both":  {864548, 1637644, 3114852, 5417666, 9386053, 13012869, 15085964, 16979671, 16945081, 17550776},
	},
}

// paperMops returns the paper's operations a second in millions at the number of clients nearest to
// clients; 0: the paper has none.
func paperMops(writes float64, steer string, clients int) float64 {
	list := cloverOps[writes][steer]
	best, off := 0.0, 0
	for i, n := range threads {
		d := max(n-clients, clients-n)
		if i < len(list) && (best == 0 || d < off) {
			best, off = list[i]/1e6, d
		}
	}
	return best
}

// steeringClaims has the claims of the paper's text about steering READs and writes compared with
// no steering, by percentage of writes: throughput (fig. 11) and bytes an operation (fig. 12), as
// factors. Its authors' data give 32 and 46 at 280 clients, and 22 and 32 at 392; the byte counters
// of fig. 12 are likely to have wrapped at 32 bits.
var steeringClaims = map[float64]struct{ gain, bytes float64 }{0: {gain: 1}, 5: {2.8, 2.5}, 50: {32, 16}, 100: {gain: 46}}
