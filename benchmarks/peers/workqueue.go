// The work queue of client-go: `workqueue KEYS CYCLES` prints cycles of add, get and done per second.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func main() {
	keys, _ := strconv.Atoi(os.Args[1])
	cycles, _ := strconv.Atoi(os.Args[2])
	names := make([]string, keys)
	for number := range names {
		names[number] = fmt.Sprintf("w-%d", number)
	}
	queue := workqueue.NewNamed("bench")
	began := time.Now()
	for cycle := 0; cycle < cycles; cycle++ {
		queue.Add(names[cycle%keys])
		key, _ := queue.Get()
		queue.Done(key)
	}
	took := time.Since(began)
	queue.ShutDown()
	fmt.Println(float64(cycles) / took.Seconds())
}
