module example.com/goclient

go 1.26.0

require github.com/rdmalab/rdmalab v0.0.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

// The repository that this example is part of; a program elsewhere leaves this line out, or names its copy.
replace github.com/rdmalab/rdmalab => ../../..
