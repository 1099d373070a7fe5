package main

// bytekeysBugs are bugs of byte-string keys, which keys with the same hash show.
var bytekeysBugs = []planted{
	{
		"bytekeys: a place that another client has claimed meanwhile is taken", "store/bytekeys/client.go",
		"holder, _, err = c.read(number, claimed, deadline)\n\t}\n\treturn err == nil",
		"err = nil\n\t}\n\treturn err == nil",
		"sim bytekeys",
	},
	{
		"bytekeys: data without a look at its key", "store/bytekeys/client.go",
		"if err == nil && string(holder) == string(key) {\n\t\t\treturn append(",
		"if err == nil {\n\t\t\treturn append(",
		"sim bytekeys",
	},
	{
		"bytekeys: a place without data ends the search", "store/bytekeys/client.go",
		"if err == nil && string(holder) == string(key) {\n\t\t\t\treturn dst[:0], absent",
		"if err == nil {\n\t\t\t\treturn dst[:0], absent",
		"sim bytekeys",
	},
	{
		"bytekeys: the data says whose a place is, in place of the claim", "store/bytekeys/client.go",
		"holder, _, err := c.read(number, claimed, deadline)\n\t\tgone",
		"holder, _, err := c.read(number+1, filled, deadline)\n\t\tgone",
		"sim bytekeys",
	},
	{
		"bytekeys: an UPSERT takes the INSERT of another client for its own", "store/kv/upsert.go",
		"\t\tretries++",
		"\t\treturn retries, nil",
		"sim bytekeys: not linearizable",
	},
	{
		"bytekeys: a lost claim goes to another key than its data", "store/bytekeys/client.go",
		"case errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrLost):",
		"case err == nil, errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrLost):",
		"store/bytekeys TestLostClaims",
	},
	{
		"bytekeys: a lost claim is taken without a look behind it", "store/bytekeys/client.go",
		"case claim && gone && !again:",
		"case claim && gone && !again && number == 0:",
		"store/bytekeys TestLostClaimBeforeTheKeys",
	},
}
