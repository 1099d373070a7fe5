package fault

// OtherWords has words of other tools for kinds, directions and classes, with the word to write here
// (package nearest).
var OtherWords = map[string]string{
	"dup": string(Duplicate), "dupe": string(Duplicate), "drop": string(Loss), "lose": string(Loss), "lost": string(Loss), "droprate": string(Loss), "cut": string(Blackhole), "disconnect": string(Blackhole),
	"bandwidth": string(Rate), "throttle": string(Rate), "limit": string(Rate), "tbf": string(Rate), "shape": string(Rate),
	"latency": string(Delay), "lag": string(Delay), "slow": string(Delay), "jitter": string(Delay), "bitflip": string(Corrupt), "flip": string(Corrupt), "corruption": string(Corrupt),
	"mark": string(Mark), "pfc": string(Storm), "storm": string(Storm), "shuffle": string(Reorder), "disorder": string(Reorder), "gap": string(Reorder), "torn": string(Tear),
	"rx": string(Down), "ingress": string(Down), "in": string(Down), "receive": string(Down), "tx": string(Up), "egress": string(Up), "out": string(Up), "send": string(Up), "all": string(Both),
	"cqe": string(Completion), "error": string(Completion), "wc": string(Completion), "status": string(Completion), "errno": string(Post), "delay": string(Late),
	"acknowledge": "ack", "reply": "response", "answer": "response", "atomics": "atomic", "requests": "request", "responses": "response",
}
